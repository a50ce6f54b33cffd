package sdk

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// FieldError says what is wrong with one setting.
type FieldError struct {
	Field   string
	Message string
}

// Error returns the field's name and the message.
func (e FieldError) Error() string { return e.Field + ": " + e.Message }

// Resolve turns values as they were given into Settings: types are converted
// and checked, defaults filled in, constraints obeyed. It reports everything
// that is wrong, in the schema's order, unknown names last. Messages never
// repeat the value of a secret.
//
// It takes string, bool, int, int64, float64, json.Number, []string, []any,
// map[string]string and map[string]any. Strings are not converted to numbers,
// nor numbers to strings. A nil value counts as not given.
func (s Schema) Resolve(given map[string]any) (Settings, []FieldError) {
	settings := Settings{}
	var problems []FieldError
	for _, f := range s {
		value := given[f.Name]
		if value == nil {
			switch {
			case f.Required:
				problems = append(problems, FieldError{f.Name, "is required"})
			case f.Default != nil:
				settings[f.Name], _ = f.coerce(f.Default)
			}
			continue
		}
		typed, err := f.coerce(value)
		if err == nil {
			err = f.check(typed)
		}
		if err != nil {
			problems = append(problems, FieldError{f.Name, err.Error()})
			continue
		}
		settings[f.Name] = typed
	}
	var unknown []string
	for name := range given {
		if _, ok := s.Field(name); !ok {
			unknown = append(unknown, name)
		}
	}
	sort.Strings(unknown)
	for _, name := range unknown {
		problems = append(problems, FieldError{name, "is not a setting of this provider"})
	}
	return settings, problems
}

// validate checks the field's own declaration.
func (f Field) validate() error {
	if !slices.Contains(FieldTypes(), f.Type) {
		return fmt.Errorf("type %.70q is not one of %v", f.Type, FieldTypes())
	}
	if len(f.Options) > maxOptions {
		return fmt.Errorf("has more than %d options", maxOptions)
	}
	for _, text := range append([]string{f.Label, f.Description, f.Placeholder}, f.Options...) {
		if len(text) > maxTextLength || !utf8.ValidString(text) {
			return fmt.Errorf("has a text that is longer than %d bytes or not UTF-8", maxTextLength)
		}
	}
	if len(f.Options) > 0 && f.Type != TypeString {
		return fmt.Errorf("options are for strings, not for %s", f.Type)
	}
	if len(f.Pattern) > maxPatternLength {
		return fmt.Errorf("pattern is longer than %d bytes", maxPatternLength)
	}
	if f.Pattern != "" {
		if f.Type != TypeString {
			return fmt.Errorf("patterns are for strings, not for %s", f.Type)
		}
		if _, err := regexp.Compile(f.Pattern); err != nil {
			return fmt.Errorf("pattern does not compile: %w", err)
		}
	}
	if (f.Min != nil || f.Max != nil) && f.Type == TypeBoolean {
		return errors.New("a boolean has no min or max")
	}
	if f.Min != nil && f.Max != nil && !(*f.Min <= *f.Max) {
		return fmt.Errorf("min %v is above max %v", *f.Min, *f.Max)
	}
	if f.Default == nil {
		return nil
	}
	if f.Required {
		return errors.New("a required field has no default")
	}
	value, err := f.coerce(f.Default)
	if err == nil {
		err = f.check(value)
	}
	if err != nil {
		return fmt.Errorf("default %w", err)
	}
	return nil
}

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
		n, ok := number(value)
		if !ok || n != math.Trunc(n) || math.Abs(n) > 1<<53 {
			return nil, errors.New("must be a whole number")
		}
		return int64(n), nil
	case TypeDuration:
		return duration(value)
	case TypeList:
		return stringList(value)
	case TypeMap:
		return stringMap(value)
	default:
		return nil, fmt.Errorf("has the unknown type %q", f.Type)
	}
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
	return time.Duration(seconds * float64(time.Second)), nil
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

func stringMap(value any) (any, error) {
	m := map[string]string{}
	switch v := value.(type) {
	case map[string]string:
		for k, s := range v {
			m[k] = s
		}
	case map[string]any:
		for k, item := range v {
			s, ok := item.(string)
			if !ok {
				return nil, fmt.Errorf("must be a map of strings; the value of %q is not one", k)
			}
			m[k] = s
		}
	default:
		return nil, errors.New("must be a map of strings")
	}
	return m, nil
}

// check applies options, pattern, min and max to a value of the field's type.
func (f Field) check(value any) error {
	size, unit := 0.0, ""
	switch v := value.(type) {
	case string:
		if len(f.Options) > 0 && !slices.Contains(f.Options, v) {
			return fmt.Errorf("must be one of %s", quoteAll(f.Options))
		}
		if f.Pattern != "" && !regexp.MustCompile(`^(?:`+f.Pattern+`)$`).MatchString(v) {
			return fmt.Errorf("must match the pattern %s", f.Pattern)
		}
		size, unit = float64(utf8.RuneCountInString(v)), " characters"
	case int64:
		size = float64(v)
	case float64:
		size = v
	case time.Duration:
		size, unit = v.Seconds(), " seconds"
	case []string:
		size, unit = float64(len(v)), " items"
	case map[string]string:
		size, unit = float64(len(v)), " entries"
	default:
		return nil
	}
	switch {
	case f.Min != nil && size < *f.Min:
		return fmt.Errorf("must be at least %v%s", *f.Min, unit)
	case f.Max != nil && size > *f.Max:
		return fmt.Errorf("must be at most %v%s", *f.Max, unit)
	}
	return nil
}

func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	return strings.Join(quoted, ", ")
}
