"""What the tools of AgentDojo do with data: declared once for each tool, as their author would."""

from typing import Any

SEND: dict[str, Any] = {"effect": "write", "outbound": True}
PEOPLE = ("sender", "recipients", "cc", "bcc", "participants", "shared_with")

TOOLS: dict[str, dict[str, Any]] = {
    # mail, calendar and files (workspace, travel)
    "send_email": {
        **SEND,
        "destinations": ("recipients", "cc", "bcc"),
        "content": ("subject", "body", "attachments"),
    },
    "delete_email": {"effect": "destructive"},
    "get_unread_emails": {"effect": "read", "addresses": PEOPLE},
    "get_sent_emails": {"effect": "read", "addresses": PEOPLE},
    "get_received_emails": {"effect": "read", "addresses": PEOPLE},
    "get_draft_emails": {"effect": "read", "addresses": PEOPLE},
    "search_emails": {"effect": "read", "addresses": PEOPLE},
    "search_contacts_by_name": {"effect": "read", "directory": True},
    "search_contacts_by_email": {"effect": "read", "directory": True},
    "get_current_day": {"effect": "read", "trusted": True},
    "search_calendar_events": {"effect": "read", "addresses": PEOPLE},
    "get_day_calendar_events": {"effect": "read", "addresses": PEOPLE},
    "create_calendar_event": {
        **SEND,
        "destinations": ("participants",),
        "content": ("title", "start_time", "end_time", "description", "location"),
    },
    "cancel_calendar_event": {"effect": "destructive"},
    "reschedule_calendar_event": {
        "effect": "write",
        "content": ("new_start_time", "new_end_time"),
    },
    "add_calendar_event_participants": SEND,
    "append_to_file": {"effect": "write", "content": ("content",)},
    "search_files_by_filename": {"effect": "read", "addresses": PEOPLE},
    "create_file": {
        "effect": "write",
        "destinations": (),
        "content": ("filename", "content"),
    },
    "delete_file": {"effect": "destructive"},
    "get_file_by_id": {"effect": "read"},
    "list_files": {"effect": "read"},
    "share_file": {**SEND, "content": ("permission",)},
    "search_files": {"effect": "read"},
    # travel
    "get_user_information": {"effect": "read", "directory": True},
    "get_all_hotels_in_city": {"effect": "read", "directory": True},
    "get_all_restaurants_in_city": {"effect": "read", "directory": True},
    "get_all_car_rental_companies_in_city": {"effect": "read", "directory": True},
    "reserve_hotel": {**SEND, "content": ("start_day", "end_day")},
    "reserve_car_rental": {**SEND, "content": ("start_time", "end_time")},
    "reserve_restaurant": {**SEND, "content": ("start_time",)},
    # bank
    "send_money": {**SEND, "content": ("amount", "subject", "date")},
    "schedule_transaction": {
        **SEND,
        "content": ("amount", "subject", "date", "recurring"),
    },
    "update_scheduled_transaction": {
        **SEND,
        "content": ("amount", "subject", "date", "recurring"),
    },
    "get_most_recent_transactions": {
        "effect": "read",
        "addresses": ("sender", "recipient"),
    },
    "get_scheduled_transactions": {
        "effect": "read",
        "addresses": ("sender", "recipient"),
    },
    "update_password": {"effect": "write"},
    "update_user_info": {"effect": "write", "destinations": ()},
    # chat
    "get_channels": {"effect": "read", "directory": True},
    "get_users_in_channel": {"effect": "read", "directory": True},
    "read_channel_messages": {"effect": "read", "addresses": ("sender",)},
    "read_inbox": {"effect": "read", "addresses": ("sender",)},
    "add_user_to_channel": {"effect": "write"},
    "invite_user_to_slack": SEND,
    "remove_user_from_slack": {"effect": "destructive"},
    "send_direct_message": {**SEND, "content": ("body",)},
    "send_channel_message": {**SEND, "content": ("body",)},
    "get_webpage": {"effect": "read", "outbound": True},
    "post_webpage": {**SEND, "content": ("content",)},
}
"""Any other tool of the suites only reads."""
