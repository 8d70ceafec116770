"""`zeus completion`: a script with which a shell completes command lines of `zeus`.

The script asks `zeus completion SHELL -- WORDS` at each request, so that it is never out of date.
The first line of an answer is the kind of completion; the words follow.
"""

from __future__ import annotations

import argparse

from zeus.cli._completions import completions

# The words of a command line come after `--`, unparsed.
RUNS_A_PROGRAM = True

_EXAMPLES = """\
examples:
  zeus completion bash > ~/.local/share/bash-completion/completions/zeus
  zeus completion zsh > ~/.zfunc/_zeus     with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc
  zeus completion fish > ~/.config/fish/completions/zeus.fish
  eval "$(zeus completion bash)"           in this shell only"""

_BASH = r"""# Completion of `zeus` in bash.
_zeus() {
    local word kind skip
    COMPREPLY=()
    {
        read -r kind skip
        while IFS= read -r word; do COMPREPLY+=("$word"); done
    } < <("${1/#\~/$HOME}" completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD-1}" "$2" 2>/dev/null)
    case $kind in
        files) compopt -o default 2>/dev/null ;;
        directories) compopt -o dirnames 2>/dev/null ;;
        program)
            if declare -F _command_offset >/dev/null; then
                _command_offset $((skip + 1))
            elif ((COMP_CWORD == skip + 1)); then
                while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -c -- "$2")
            else
                compopt -o default 2>/dev/null
            fi ;;
    esac
}
complete -F _zeus zeus
"""

_ZSH = r"""#compdef zeus
# Completion of `zeus` in zsh.
_zeus() {
    local -a answer
    answer=("${(@f)$(
        ${~words[1]} completion zsh -- "${(@)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null
    )}")
    local -a kind=(${=answer[1]})
    shift answer
    [[ $PREFIX == --*=* ]] && compset -P 1 '*='
    case $kind[1] in
        files) _files ;;
        directories) _files -/ ;;
        program)
            shift $((kind[2] + 1)) words
            ((CURRENT -= kind[2] + 1))
            _normal ;;
        *) _describe 'zeus' answer ;;
    esac
}
if [[ $funcstack[1] == _zeus ]]; then
    _zeus "$@"
else
    compdef _zeus zeus
fi
"""

_FISH = r"""# Completion of `zeus` in fish.
function __zeus_complete
    set -l words (commandline -opc)
    set -l begun (commandline -ct)
    set -l program $words[1]
    set -e words[1]
    set -l answer ($program completion fish -- $words "$begun" 2>/dev/null)
    set -l kind (string split ' ' -- $answer[1])
    set -e answer[1]
    set -l option (string match -r '^--[^=]*=' -- $begun)
    set -l value (string replace -r '^--[^=]*=' '' -- $begun)
    switch "$kind[1]"
        case files
            __fish_complete_path $value | string replace -r '^' -- "$option"
        case directories
            __fish_complete_directories $value '' | string replace -r '^' -- "$option"
        case program
            set -e words[1..$kind[2]]
            complete -C "$words $begun"
        case '*'
            string replace -r '^' -- "$option" $answer
    end
end
complete -c zeus -f -a '(__zeus_complete)'
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the argument."""
    parser.description = "Print a script with which a shell completes commands, options, choices "
    parser.description += "and files of `zeus`."
    parser.epilog = _EXAMPLES
    parser.add_argument("shell", choices=_SCRIPTS, metavar="|".join(_SCRIPTS), help="the shell")
    parser.set_defaults(program=[])


def run(arguments: argparse.Namespace) -> int:
    """Print the script; or, for the script, what may follow on a command line."""
    if not arguments.program:
        print(_SCRIPTS[arguments.shell], end="")
        return 0
    found = completions(arguments.program)
    print(f"{found.kind} {found.skip}")
    for word, said in found.words.items():
        print(_line(arguments.shell, word, _brief(said)))
    return 0


def _line(shell: str, word: str, said: str) -> str:
    if shell == "fish" and said:
        return f"{word}\t{said}"
    if shell == "zsh":
        return word.replace("\\", "\\\\").replace(":", "\\:") + (f":{said}" if said else "")
    return word


def _brief(said: str) -> str:
    """The beginning of an explanation, for one line beside others."""
    return said if len(said) <= 60 else f"{said[:59].rstrip()}…"
