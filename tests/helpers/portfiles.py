"""Writes the files of a port, with a change of one of them."""


def write(folder, files, changed="", old="", new=""):
    """A model folder of these files: name without ``.py`` -> text. changed: the name of the file in which old becomes new."""
    folder.mkdir()
    for name, text in files.items():
        if name == changed and old:
            assert old in text
            text = text.replace(old, new)
        (folder / f"{name}.py").write_text(text)
    return folder
