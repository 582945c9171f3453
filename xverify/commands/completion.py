from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from ..workload.declaration import Option
from ._arguments import Parser

HELP = "print a script that lets a shell complete commands, options and values"
GROUP = "this installation"
EXAMPLE = """Make the folder first when it is missing, and start a new shell. To try the
script in this shell only: source <(xverify completion bash) in bash,
eval "$(xverify completion zsh)" in zsh, or xverify completion fish | source
in fish. The script holds the models and subjects that are known now: print it
again after an update.

examples:
  xverify completion bash
  xverify completion bash > ~/.local/share/bash-completion/completions/xverify
  xverify completion zsh > "${fpath[1]}/_xverify"
  xverify completion fish > ~/.config/fish/completions/xverify.fish"""
EXIT_CODES = {0: "done", 2: "a wrong command line"}
SHELLS = ("bash", "zsh", "fish")

# Bash splits words at ":" and "=", but torch:eager is one word of xverify. This function joins words, completes, and splits again.
BASH_WORDS = """
_xverify() {
  local -a words=()
  local index word last cursor=0 joins=0
  local current="${COMP_WORDS[COMP_CWORD]}"
  for index in "${!COMP_WORDS[@]}"; do
    word="${COMP_WORDS[index]}"
    last=$((${#words[@]} - 1))
    if [[ "$word" == "=" && "${words[last]}" == --* ]]; then
      [[ $index == "$COMP_CWORD" ]] && words+=("")
    elif [[ "$word" == [:=] && $last -ge 0 ]]; then
      words[last]+="$word"
      joins=1
    elif [[ $joins == 1 ]]; then
      words[last]+="$word"
      joins=0
    else
      words+=("$word")
    fi
    [[ $index == "$COMP_CWORD" ]] && cursor=$((${#words[@]} - 1))
  done
  [[ "$current" == [:=] ]] && current=""
  local before="${words[cursor]%"$current"}"
  local -a COMP_WORDS=("${words[@]}")
  local COMP_CWORD=$cursor
  _shtab_xverify
  COMPREPLY=("${COMPREPLY[@]#"$before"}")
}

complete -o bashdefault -F _xverify xverify
"""


@dataclass(frozen=True)
class Values:
    """The values that a shell offers for one argument.

    name: of the shell function that offers them; shtab expects "_dir" in it when folders are offered.
    words: the values.
    many: whether several values may be given, separated by commas.
    folders: whether folders are offered, too.
    """

    name: str
    words: tuple[str, ...]
    many: bool = False
    folders: bool = False

    def function(self, shell: str) -> str:
        """The shell function."""
        words = " ".join(self.words)
        if shell == "bash":
            folders = '\n  compgen -d -- "$1"' if self.folders else ""
            if not self.many:
                return f'{self.name}() {{\n  compgen -W "{words}" -- "$1"{folders}\n}}'
            before = '  local before=""\n  [[ "$1" == *,* ]] && before="${1%,*},"\n'
            return f'{self.name}() {{\n{before}  compgen -P "$before" -W "{words}" -- "${{1##*,}}"\n}}'
        if shell == "zsh":
            offer = f"_sequence compadd - {words}" if self.many else f"compadd - {words}"
            return f"{self.name}() {{\n  {offer}{'; _files -/' if self.folders else ''}\n}}"
        folders = "\n  __fish_complete_directories" if self.folders else ""
        return f"function {self.name}\n  printf '%s\\n' {words}{folders}\nend"

    def call(self, shell: str) -> str:
        """The text by which shtab's script calls the function."""
        if shell != "fish":
            return self.name
        return f"(__fish_complete_list , {self.name})" if self.many else f"({self.name})"


def add_arguments(parser: Parser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of: {', '.join(SHELLS)}")


def main(args: argparse.Namespace) -> int:
    """Print the script."""
    print(script(args.shell))
    return 0


def script(shell: str) -> str:
    """The completion script for a shell. Every command is imported, but no framework."""
    try:
        import shtab
    except ModuleNotFoundError:
        raise UsageError("shell completion needs shtab, which is not installed here: pip install shtab") from None
    from ._main import parser

    top = parser()
    functions: dict[str, str] = {}
    offers = _known_values()
    for command, action in _actions(top):
        offered = _offered(command, action, offers)
        if isinstance(offered, Values):
            vars(action)["complete"] = {shell: offered.call(shell)}
            functions[offered.name] = offered.function(shell)
        elif offered is not None:
            vars(action)["complete"] = {"file": shtab.FILE, "folder": shtab.DIRECTORY}[offered]
    text = shtab.complete(top, shell, preamble="\n\n".join(functions.values()))
    return text + BASH_WORDS if shell == "bash" else text


def _actions(parser: Parser, command: str = "") -> Iterator[tuple[str, argparse.Action]]:
    """Every argument of every command: (the command that has it, its action)."""
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            yield command, action
    for name, _, below in parser.actions():
        yield from _actions(below, command or name)


def _known_values() -> dict[str, Values]:
    """The known values by the option or metavar of the argument that takes them."""
    from ..environments import store
    from ..framework import discovery
    from ..reproduce.published import EXPERIMENTS
    from ..workload.spec import zoo

    adapters = discovery.computing()
    subjects = tuple(subject for adapter in adapters.values() for subject in adapter.subjects())
    return {
        "MODEL|FOLDER": Values("_xverify_models_dir", tuple(zoo()), folders=True),
        "--subjects": Values("_xverify_subjects", subjects, many=True),
        "--subject": Values("_xverify_subject", subjects),
        "--frameworks": Values("_xverify_frameworks", tuple(adapters), many=True),
        "env NAME": Values("_xverify_environments", tuple(store.pins())),
        "reproduce NAME": Values("_xverify_experiments", tuple(EXPERIMENTS)),
    }


def _offered(command: str, action: argparse.Action, known: dict[str, Values]) -> Values | str | None:
    """What a shell offers for an argument: values, "file" or "folder"; None: nothing, or the choices that shtab finds itself."""
    option: Option | None = vars(action).get("option")
    if option is not None and option.choices:
        name = f"_xverify_{command}_{option.name}".replace("-", "_")
        return Values(name, option.choices, many=option.many)
    metavar: Any = action.metavar or ""
    for key in (*action.option_strings, metavar, f"{command} {metavar}"):
        if key in known:
            return known[key]
    if metavar in ("FILE", "SOURCE", "TARGET", "LEFT", "RIGHT") or str(metavar).endswith(".json"):
        return "file"
    return "folder" if metavar == "DIR" else None
