"""What a caller may want to catch."""


class OnladError(Exception):
    """Base of the errors that onlad raises on purpose."""


class ModelFileError(OnladError):
    """A file is not a model of onlad's, or is damaged, or comes from a newer version."""


class NotInModelError(OnladError):
    """A sample to be unlearned was never learned, or the model knows too little without it."""
