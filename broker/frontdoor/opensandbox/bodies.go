package opensandbox

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// readObject reads a body that must be an object; null is as good as absent. A field that
// is not known may change what the client gets, and is refused by name unless it is empty:
// SDKs of all ages send empty ones.
func readObject(body []byte, into any) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return sdk.Errorf(sdk.CodeInvalidRequest, "The body must be a JSON object.")
	}
	if name := unknownField(body, reflect.TypeOf(into)); name != "" {
		return notServed(name)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return sdk.Errorf(sdk.CodeInvalidRequest, "The body has a field that is not of the type that the API has for it.")
	}
	return nil
}

// notServed is the refusal of a field that is not known.
func notServed(name string) error {
	return refused(name, "is not served here, and would change what you get; leave it out")
}

// unknownField returns the path of the first field, by name, that a value of JSON has and
// its type in Go has not, though it is not empty; "" if there is none. Items of arrays and
// names that clients choose are not in the path. What is of another type than it should be
// has none.
func unknownField(raw json.RawMessage, t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Map:
		var values map[string]json.RawMessage
		if t.Elem().Kind() != reflect.Struct || json.Unmarshal(raw, &values) != nil {
			return ""
		}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if below := unknownField(values[name], t.Elem()); below != "" {
				return below
			}
		}
	case reflect.Slice:
		var items []json.RawMessage
		if t.Elem().Kind() != reflect.Struct || json.Unmarshal(raw, &items) != nil {
			return ""
		}
		for _, item := range items {
			if name := unknownField(item, t.Elem()); name != "" {
				return name
			}
		}
	case reflect.Struct:
		var fields map[string]json.RawMessage
		if json.Unmarshal(raw, &fields) != nil {
			return ""
		}
		known := map[string]reflect.Type{}
		for _, field := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !field.Anonymous {
				known[name] = field.Type
			}
		}
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			inside, ok := known[name]
			switch {
			case !ok && isNothing(fields[name]):
			case !ok:
				return frontdoor.Clipped(name)
			default:
				if below := unknownField(fields[name], inside); below != "" {
					return name + "." + below
				}
			}
		}
	}
	return ""
}
