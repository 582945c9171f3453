"""The completion scripts; that of bash is sourced, and asked, in a real bash. So are those of zsh and fish where these exist."""

import os
import pty
import select
import shutil
import subprocess
import time

import pytest

from xverify.commands._main import commands
from xverify.commands.completion import SHELLS, script
from xverify.framework import discovery
from xverify.workload.declaration import declared
from xverify.workload.options import RunSettings
from xverify.workload.spec import zoo

SUBJECTS = [subject for adapter in discovery.computing().values() for subject in adapter.subjects()]
# Sets what bash sets before it calls a completion, with words as bash breaks them.
ASK = 'ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _xverify; echo "${COMPREPLY[*]}"; }\n'


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        (folder / shell).write_text(script(shell))
    return folder


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_holds_commands_options_choices_models_and_subjects(shell, scripts):
    text = (scripts / shell).read_text()
    names = {"fish": lambda each: f"-l {each.name.replace('_', '-')} "}.get(shell, lambda each: each.flag)
    for word in (*commands(), *zoo(), *SUBJECTS, "rigorous", "create", *map(names, declared(RunSettings))):
        assert word in text


def test_the_command_prints_the_script(xverify, scripts):
    done = xverify("completion", "bash")
    assert done.code == 0
    assert "_xverify_subjects()" in done.out
    assert "complete -o bashdefault -F _xverify xverify" in done.out


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["ru"], "run"),
        ([""], " ".join(commands())),
        (["run", "--eff"], "--effort"),
        (["run", "mlp", "--effort", ""], "quick standard rigorous"),
        (["run", "resnet15"], "resnet152"),
        (["mutate", "mlp", "resnet15"], "resnet152"),
        (["run", "mlp", "--subjects", "torch", ":", "ea"], "eager"),
        (["run", "mlp", "--subjects", "torch", ":", "eager,jitt"], "eager,jittor"),
        (["run", "mlp", "--subjects", "torch", ":", "eager,tensorflow", ":", "gr"], "graph"),
        (["run", "mlp", "--subjects", "=", "jitt"], "jittor"),
        (["run", "mlp", "--subjects", "torch", ":", "eager", "--rer"], "--rerun"),
        (["run", "mlp", "--python", "jittor", "=", "/bin/x", "--rer"], "--rerun"),
        (["run", "mlp", "--task", "forward,tr"], "forward,train"),
        (["env", "cr"], "create"),
        (["env", "create", "ja"], "jax"),
        (["reproduce", "vgg"], "vgg16"),
        (["completion", "f"], "fish"),
        (["explain", "{folder}/fi"], "{folder}/fish"),
        (["run", "mlp", "--json", "{folder}/fi"], "{folder}/fish"),
    ],
)
def test_bash_offers_the_right_words(words, offered, scripts):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    asked = " ".join(f"'{word.format(folder=scripts)}'" for word in ("xverify", *words))
    code = f"source {scripts}/bash\n{ASK}ask {asked}"
    done = subprocess.run([bash, "--norc", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == (offered.format(folder=scripts), "")


def typed(command, lines):
    """What a shell in a terminal prints for these lines."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "dumb"
        os.execvp(command[0], command)
    seen = b""
    for line in ["", *lines]:
        os.write(terminal, line.encode())
        quiet = time.monotonic() + 1.5
        while time.monotonic() < quiet:
            if select.select([terminal], [], [], 0.1)[0]:
                try:
                    seen += os.read(terminal, 65536)
                except OSError:
                    break
                quiet = time.monotonic() + 0.5
    os.close(terminal)
    os.waitpid(pid, 0)
    return seen.decode(errors="replace")


def test_the_tab_key_of_bash_completes(scripts):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    setup = f'source {scripts}/bash; xverify() {{ echo CALLED "$*"; }}\n'
    line = "xverify mut\tmlp --tas\ttra\t--thr\t2\n", "xverify run mlp --subjects torch:eager,tensorflow:gr\t\n"
    text = typed([bash, "--norc", "--noprofile", "-i"], [setup, *line, "exit\n"])
    assert "CALLED mutate mlp --task train --threads 2" in text
    assert "CALLED run mlp --subjects torch:eager,tensorflow:graph" in text


def test_fish_offers_the_right_words(scripts):
    fish = shutil.which("fish")
    if fish is None:
        pytest.skip("no fish")
    lines = ["xverify ru", "xverify run mlp --subjects torch:eager,jitt", "xverify run mlp --effort st"]
    code = f"source {scripts}/fish; " + "; ".join(f"complete -C '{line}'" for line in lines)
    done = subprocess.run([fish, "--no-config", "-c", code], capture_output=True, text=True, check=True)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["run", "torch:eager,jittor", "standard"]


def test_zsh_accepts_the_syntax_of_the_script(scripts):
    zsh = shutil.which("zsh")
    if zsh is None:
        pytest.skip("no zsh")
    subprocess.run([zsh, "-n", str(scripts / "zsh")], check=True)
