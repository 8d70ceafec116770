#!/bin/sh
# Slurm prolog of a node: says to the Zeus agent that a job begins, and which GPUs are its own. The
# agent notes the values of their knobs, which the epilog puts back.
#
# slurm.conf: Prolog=/etc/slurm/zeus-prolog.sh and PrologFlags=Alloc (before the job's first process).
# It never fails a job, since a prolog that fails drains the node: without an agent it logs that, and
# the job runs without knobs.

zeus=/opt/zeus/bin/zeus
seconds=10 # an agent that does not answer holds up a job no longer

answer=$(timeout --kill-after=2 "$seconds" "$zeus" agent job begin "$SLURM_JOB_ID" \
    --user "$SLURM_JOB_UID" --gpus "${SLURM_JOB_GPUS:-}" 2>&1) || {
    message="job $SLURM_JOB_ID begins without the Zeus agent (exit code $?): $answer"
    logger -t zeus-prolog -p daemon.warning -- "$message" 2>/dev/null
    echo "$message" >&2
}
exit 0
