#!/bin/sh
# Slurm epilog of a node: says to the Zeus agent that a job has ended. The agent ends the job's leases
# and gives the knobs of its GPUs the values from the job's beginning, whoever changed them.
#
# slurm.conf: Epilog=/etc/slurm/zeus-epilog.sh.
# It never fails a job, since an epilog that fails drains the node: without an agent it logs that, and
# leaves a note, by which the agent does the same at its next start.

zeus=/opt/zeus/bin/zeus
notes=/run/zeus/ended-jobs
seconds=10 # an agent that does not answer holds up the node no longer

answer=$(timeout --kill-after=2 "$seconds" "$zeus" agent job end "$SLURM_JOB_ID" 2>&1) || {
    code=$?
    if [ -d "${notes%/*}" ]; then # an agent has been here
        mkdir -p -m 700 "$notes" && : >"$notes/$SLURM_JOB_ID"
    fi
    message="job $SLURM_JOB_ID ends without the Zeus agent (exit code $code): $answer"
    logger -t zeus-epilog -p daemon.warning -- "$message" 2>/dev/null
    echo "$message" >&2
}
exit 0
