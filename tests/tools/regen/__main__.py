"""`python -m tests.tools.regen [--check]`."""

import sys

from tests.tools.regen.artifacts import ROOT, artifacts


def main(arguments: list[str]) -> int:
    """Write what differs, or with --check only name it and exit with 1."""
    is_check = arguments == ["--check"]
    if arguments and not is_check:
        print(f"found {arguments}, allowed: --check", file=sys.stderr)
        return 2
    differing = 0
    for artifact in artifacts():
        path = ROOT / artifact.path
        made = artifact.make()
        if path.is_file() and path.read_bytes() == made:
            continue
        differing += 1
        print(f"{'differs' if is_check else 'written'}: {artifact.path}")
        if not is_check:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.part")
            temporary.write_bytes(made)
            temporary.replace(path)
    return 1 if is_check and differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
