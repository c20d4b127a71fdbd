from served import model_dir  # noqa: F401
