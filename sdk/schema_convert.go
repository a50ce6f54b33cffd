package sdk

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// coerce converts a value to the Go type of the field, which the FieldTypes document. The
// errors complete a sentence that begins with the name of the field, and never hold the
// value: it may be a secret.
func (f Field) coerce(value any) (any, error) {
	switch f.Type {
	case TypeString:
		if s, ok := value.(string); ok {
			return s, nil
		}
		return nil, errors.New("must be a string")
	case TypeBoolean:
		if b, ok := value.(bool); ok {
			return b, nil
		}
		return nil, errors.New("must be true or false")
	case TypeNumber:
		if n, ok := number(value); ok {
			return n, nil
		}
		return nil, errors.New("must be a number")
	case TypeInteger:
		return integer(value)
	case TypeDuration:
		return duration(value)
	case TypeList:
		return f.list(value)
	case TypeMap:
		return f.stringMap(value)
	default:
		return nil, fmt.Errorf("has the unknown type %q", f.Type)
	}
}

// maxInteger is the largest whole number that survives the wire, where numbers
// are float64.
const maxInteger = 1 << 53

// integer takes whole numbers of any of the types that numbers come in: Go's own, float64
// as the wire has them, and json.Number.
func integer(value any) (any, error) {
	n, exact := int64(0), false
	switch v := value.(type) {
	case int:
		n, exact = int64(v), true
	case int64:
		n, exact = v, true
	case json.Number:
		if parsed, err := v.Int64(); err == nil {
			n, exact = parsed, true
		}
	}
	if !exact {
		f, ok := number(value)
		if !ok || f != math.Trunc(f) {
			return nil, errors.New("must be a whole number")
		}
		n = int64(max(-2*maxInteger, min(f, 2*maxInteger)))
	}
	if n < -maxInteger || n > maxInteger {
		return nil, fmt.Errorf("must be a whole number from -%d to %d", int64(maxInteger), int64(maxInteger))
	}
	return n, nil
}

// number refuses what is no number to JSON either: infinity, and NaN.
func number(value any) (float64, bool) {
	var n float64
	switch v := value.(type) {
	case int:
		n = float64(v)
	case int64:
		n = float64(v)
	case float64:
		n = v
	case json.Number:
		parsed, err := strconv.ParseFloat(string(v), 64)
		if err != nil {
			return 0, false
		}
		n = parsed
	default:
		return 0, false
	}
	return n, !math.IsNaN(n) && !math.IsInf(n, 0)
}

// duration takes text as time.ParseDuration does, or a number of seconds.
func duration(value any) (any, error) {
	bad := errors.New(`must be a duration such as "30s", "5m" or a number of seconds`)
	if d, ok := value.(time.Duration); ok {
		return d, nil
	}
	if s, ok := value.(string); ok {
		d, err := time.ParseDuration(s)
		if err != nil {
			return nil, bad
		}
		return d, nil
	}
	seconds, ok := number(value)
	if !ok || math.Abs(seconds) > float64(math.MaxInt64/int64(time.Second)) {
		return nil, bad
	}
	return time.Duration(math.Round(seconds * float64(time.Second))), nil
}

// item is what the items of a list are.
func (f Field) item() Field {
	if f.Items == nil {
		return Field{Type: TypeString}
	}
	return *f.Items
}

// list converts each item, and says which one is wrong, counted from 1.
func (f Field) list(value any) (any, error) {
	item := f.item()
	given, ok := anyList(value)
	if !ok {
		return nil, fmt.Errorf("must be a list of %s", plurals[item.Type])
	}
	switch item.Type {
	case TypeInteger:
		return itemsOf[int64](item, given)
	case TypeNumber:
		return itemsOf[float64](item, given)
	default:
		return itemsOf[string](item, given)
	}
}

var plurals = map[FieldType]string{TypeString: "strings", TypeInteger: "whole numbers", TypeNumber: "numbers"}

// anyList takes a list apart, whatever its items are.
func anyList(value any) ([]any, bool) {
	switch v := value.(type) {
	case []any:
		return v, true
	case []string:
		return anyItems(v), true
	case []int:
		return anyItems(v), true
	case []int64:
		return anyItems(v), true
	case []float64:
		return anyItems(v), true
	default:
		return nil, false
	}
}

func anyItems[T any](list []T) []any {
	items := make([]any, len(list))
	for i, item := range list {
		items[i] = item
	}
	return items
}

func itemsOf[T any](item Field, given []any) (any, error) {
	list := make([]T, len(given))
	for i, value := range given {
		typed, err := item.coerce(value)
		if err != nil && item.Items == nil && item.Type == TypeString {
			return nil, fmt.Errorf("must be a list of strings; item %d is not one", i+1)
		}
		if err != nil {
			return nil, fmt.Errorf("must be a list of %s; item %d %w", plurals[item.Type], i+1, err)
		}
		list[i] = typed.(T)
	}
	return list, nil
}

// stringMap copies: what was given stays the caller's. Of a secret map not even the keys
// are repeated in an error.
func (f Field) stringMap(value any) (any, error) {
	m := map[string]string{}
	switch v := value.(type) {
	case map[string]string:
		for k, s := range v {
			m[k] = s
		}
	case map[string]any:
		for k, item := range v {
			s, ok := item.(string)
			switch {
			case !ok && f.Secret:
				return nil, errors.New("must be a map of strings; one of its values is not one")
			case !ok:
				return nil, fmt.Errorf("must be a map of strings; the value of %q is not one", k)
			}
			m[k] = s
		}
	default:
		return nil, errors.New("must be a map of strings")
	}
	return m, nil
}
