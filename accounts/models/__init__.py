"""The rows of the User-manager, a file for each subject."""

from .login import Factor, Identity, LoginAddress, RecoveryCode, Throttle, Visit
from .notice import Delivery, Notice, Preference
from .share import Share
from .token import Token, new_nonce
from .user import State, User, UserManager

__all__ = [
    "Delivery", "Factor", "Identity", "LoginAddress", "Notice", "Preference", "RecoveryCode", "Share", "State",
    "Throttle", "Token", "User", "UserManager", "Visit", "new_nonce",
]  # fmt: skip
