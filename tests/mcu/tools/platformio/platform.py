from platformio.public import PlatformBase


class EmulatedPlatform(PlatformBase):
    """The platform of platform.json."""
