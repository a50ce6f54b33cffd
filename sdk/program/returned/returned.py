# Makes JSON of what main returned.
import json
import math
import sys


def express(value, limit):
    """What main returned, as bytes of JSON."""
    try:
        try:
            data = dump(value)
        except RecursionError:
            raise
        except (TypeError, ValueError):
            lost = []
            data = dump(plain(value, lost))
            if lost:
                print("main returned NaN or infinite numbers, which JSON cannot express: they are null in the result", file=sys.stderr or sys.__stderr__)
    except (TypeError, ValueError, RecursionError) as e:
        raise TypeError(f"main must return something that JSON can express: {e}") from None
    if len(data) > limit:
        raise ValueError(f"main returned {len(data)} bytes of JSON, more than the limit of {limit}")
    return data


def dump(value):
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:  # lone surrogates have no UTF-8 form
        return json.dumps(value, allow_nan=False).encode()


def plain(value, lost):
    """The value in the types that JSON has. What is lost on the way is told in lost."""
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        lost.append(value)
        return None
    if isinstance(value, dict):
        return {name(key): plain(item, lost) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, lost) for item in value]
    return value


def name(key):
    """A key that JSON can have. It takes numbers, but not those of numpy, nor NaN."""
    if type(key).__module__ == "numpy" and hasattr(key, "tolist"):
        key = key.tolist()
    if isinstance(key, float) and not math.isfinite(key):
        return str(key)
    return key
