package sdk

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// FieldError says what is wrong with one setting. The operator sees all of them together,
// each with its place in the file.
type FieldError struct {
	// Field is the path of the setting, such as auth.token or rules[0].port.
	Field string
	// Message completes a sentence that begins with the field: "must be a string".
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
// map[string]string and map[string]any, which a block is too, or Settings; repeated
// blocks are a list of them. A mistake within a block names its path, such as
// auth.token or rules[0].port. A block that is not given is absent, with its defaults.
// Strings are not converted to numbers,
// nor numbers to strings. A nil value counts as not given.
func (s Schema) Resolve(given map[string]any) (Settings, []FieldError) {
	settings := Settings{}
	var problems []FieldError
	for _, f := range s {
		value := given[f.Name]
		if value == nil {
			switch few := f.CheckCount(0); {
			case f.Required:
				problems = append(problems, FieldError{f.Name, "is required"})
			case few != nil:
				problems = append(problems, FieldError{f.Name, few.Error()})
			case f.Default != nil:
				settings[f.Name], _ = f.coerce(f.Default)
			}
			continue
		}
		if f.Type == TypeBlock {
			blocks, wrong := f.resolveBlocks(value)
			if problems = append(problems, wrong...); len(wrong) == 0 {
				settings[f.Name] = blocks
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

// validate checks the field's own declaration, its default included: a default obeys what
// the field asks of others. The errors are for the author of the provider.
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
		if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
			return errors.New("has a text with control characters")
		}
	}
	if len(f.Options) > 0 && f.Type != TypeString {
		return fmt.Errorf("options are for strings, not for %s; those of the items of a list stand in items", f.Type)
	}
	if err := f.validateItems(); err != nil {
		return err
	}
	if err := f.validateBlock(); err != nil {
		return err
	}
	if len(f.Pattern) > maxPatternLength {
		return fmt.Errorf("pattern is longer than %d bytes", maxPatternLength)
	}
	if f.Pattern != "" {
		if f.Type != TypeString {
			return fmt.Errorf("patterns are for strings, not for %s", f.Type)
		}
		// Both forms: an unfinished \Q compiles alone and swallows what is put
		// behind it.
		if err := checkPattern(f.Pattern); err != nil {
			return err
		}
		if _, err := regexp.Compile(f.Pattern); err != nil {
			return fmt.Errorf("pattern does not compile: %w", err)
		}
		if _, err := regexp.Compile(whole(f.Pattern)); err != nil {
			return fmt.Errorf("pattern does not compile: %w", err)
		}
	}
	if (f.Min != nil || f.Max != nil) && f.Type == TypeBoolean {
		return errors.New("a boolean has no min or max")
	}
	for _, bound := range []*float64{f.Min, f.Max} {
		if bound != nil && (math.IsNaN(*bound) || math.IsInf(*bound, 0)) {
			return errors.New("min and max must be finite numbers")
		}
	}
	if f.Min != nil && f.Max != nil && *f.Min > *f.Max {
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

// validateItems checks what a list says of its items.
func (f Field) validateItems() error {
	if f.Items == nil {
		return nil
	}
	item := *f.Items
	if f.Type != TypeList {
		return fmt.Errorf("items are for lists, not for %s", f.Type)
	}
	if plurals[item.Type] == "" {
		return fmt.Errorf("items of the type %.70q are not possible; they are strings, integers or numbers", item.Type)
	}
	if only := (Field{Type: item.Type, Options: item.Options, Min: item.Min, Max: item.Max, Pattern: item.Pattern}); !reflect.DeepEqual(only, item) {
		return errors.New("items have a type, options, min, max and a pattern; everything else stands at the list")
	}
	if err := item.validate(); err != nil {
		return fmt.Errorf("items: %w", err)
	}
	return nil
}

// checkItems applies what a list says of its items to each.
func (f Field) checkItems(list any) error {
	items, ok := anyList(list)
	if f.Items == nil || !ok {
		return nil
	}
	for i, item := range items {
		if err := f.Items.check(item); err != nil {
			return fmt.Errorf("has an item, number %d, that %w", i+1, err)
		}
	}
	return nil
}

// check applies options, pattern, min and max to a value of the field's type. Of a string
// the characters count, not the bytes; of a duration the seconds; of a list, a map or a
// repeated block how many there are. A boolean has nothing to check.
func (f Field) check(value any) error {
	if err := f.checkItems(value); err != nil {
		return err
	}
	size, verb, unit := 0.0, "be", ""
	switch v := value.(type) {
	case string:
		if len(f.Options) > 0 && !slices.Contains(f.Options, v) {
			return fmt.Errorf("must be one of %s", quoteAll(f.Options))
		}
		if f.Pattern != "" && !regexp.MustCompile(whole(f.Pattern)).MatchString(v) {
			return fmt.Errorf("must match the pattern %s", f.Pattern)
		}
		size, verb, unit = float64(utf8.RuneCountInString(v)), "have", " character"
	case int64:
		size = float64(v)
	case float64:
		size = v
	case time.Duration:
		size, unit = v.Seconds(), " second"
	case []string:
		size, verb, unit = float64(len(v)), "have", " item"
	case []int64:
		size, verb, unit = float64(len(v)), "have", " item"
	case []float64:
		size, verb, unit = float64(len(v)), "have", " item"
	case map[string]string:
		size, verb, unit = float64(len(v)), "have", " key"
	case []Settings:
		size, verb, unit = float64(len(v)), "stand", " time"
	default:
		return nil
	}
	below, above := f.Min != nil && size < *f.Min, f.Max != nil && size > *f.Max
	switch {
	case (below || above) && f.Min != nil && f.Max != nil:
		return fmt.Errorf("must %s from %s to %s", verb, decimal(*f.Min), counted(*f.Max, unit))
	case below:
		return fmt.Errorf("must %s at least %s", verb, counted(*f.Min, unit))
	case above:
		return fmt.Errorf("must %s at most %s", verb, counted(*f.Max, unit))
	}
	return nil
}

// whole makes a pattern match whole strings only.
func whole(pattern string) string { return `^(?:` + pattern + `)$` }

// decimal writes a bound as people do: 16777216, not 1.6777216e+07.
func decimal(bound float64) string {
	if math.Abs(bound) >= 1e21 {
		return strconv.FormatFloat(bound, 'g', -1, 64)
	}
	return strconv.FormatFloat(bound, 'f', -1, 64)
}

// counted puts a unit behind a bound, in the plural unless the bound is 1.
func counted(bound float64, unit string) string {
	if unit != "" && bound != 1 {
		unit += "s"
	}
	return decimal(bound) + unit
}

func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	return strings.Join(quoted, ", ")
}
