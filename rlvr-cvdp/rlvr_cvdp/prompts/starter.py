"""The short prompt that the starter model is trained on."""


def brief_prompt(spec: str, target_path: str) -> str:
    """The specification and the file to write, one line each; ends in a newline."""
    return f"{spec}\nFile: {target_path}\n"
