"""The rows of the User-manager, a file for each subject."""

from .login import Factor, Identity, LoginAddress, RecoveryCode, Throttle, Visit
from .membership import SUBMITTING, Membership, Role
from .notice import Delivery, Notice, Preference
from .share import Share
from .token import TARGETED, Scope, Token, new_nonce
from .user import ADMINISTRATORS, State, User, UserManager

__all__ = [
    "ADMINISTRATORS", "SUBMITTING", "TARGETED", "Delivery", "Factor", "Identity", "LoginAddress", "Membership",
    "Notice", "Preference", "RecoveryCode", "Role", "Scope", "Share", "State", "Throttle", "Token", "User",
    "UserManager", "Visit", "new_nonce",
]  # fmt: skip
