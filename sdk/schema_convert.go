package sdk

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// coerce converts a value to the Go type of the field.
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
		return stringList(value)
	case TypeMap:
		return f.stringMap(value)
	default:
		return nil, fmt.Errorf("has the unknown type %q", f.Type)
	}
}

// maxInteger is the largest whole number that survives the wire, where numbers
// are float64.
const maxInteger = 1 << 53

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

func stringList(value any) (any, error) {
	switch v := value.(type) {
	case []string:
		return slices.Clone(v), nil
	case []any:
		list := make([]string, len(v))
		for i, item := range v {
			s, ok := item.(string)
			if !ok {
				return nil, fmt.Errorf("must be a list of strings; item %d is not one", i+1)
			}
			list[i] = s
		}
		return list, nil
	}
	return nil, errors.New("must be a list of strings")
}

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
