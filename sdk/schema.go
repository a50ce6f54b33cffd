package sdk

import (
	"fmt"
	"regexp"
)

// Schema lists the settings of a provider. It is the single source for reading
// the configuration file, for forms, for redaction and for documentation.
type Schema []Field

// Field describes one setting.
type Field struct {
	// Name as written in the configuration, [a-z][a-z0-9_]{0,62}.
	Name string
	Type FieldType
	// Required settings have no default.
	Required bool
	// Secret settings are never shown, logged or echoed.
	Secret bool
	// Default for a setting that is not given; nil for none. Its Go type is
	// the one that Settings documents for the field's type.
	Default any
	// Options lists the values allowed, for strings.
	Options []string
	// Min and Max bound integers and numbers, durations (in seconds), and the
	// length of strings and lists.
	Min, Max *float64
	// Pattern is a regular expression (RE2) that a whole string must match.
	Pattern string
	// Label, Description and Placeholder are for people.
	Label, Description, Placeholder string
}

// FieldType is the type of a setting.
type FieldType string

// The field types, and the Go type of their values in Settings.
const (
	TypeString   FieldType = "string"   // string
	TypeInteger  FieldType = "integer"  // int64, at most 2^53 either way
	TypeNumber   FieldType = "number"   // float64
	TypeBoolean  FieldType = "boolean"  // bool
	TypeDuration FieldType = "duration" // time.Duration; "30s" or a number of seconds in the file
	TypeList     FieldType = "list"     // []string
	TypeMap      FieldType = "map"      // map[string]string
)

// FieldTypes lists all values of FieldType.
func FieldTypes() []FieldType {
	return []FieldType{TypeString, TypeInteger, TypeNumber, TypeBoolean, TypeDuration, TypeList, TypeMap}
}

// Bound is a helper for Field.Min and Field.Max.
func Bound(v float64) *float64 { return &v }

// Limits on a schema; the broker refuses a plugin that exceeds them.
const (
	maxFields        = 200
	maxPatternLength = 1000
	maxOptions       = 1000
	maxTextLength    = 4000
)

var fieldName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// reserved names belong to the broker in a provider block.
var reserved = map[string]bool{"plugin": true, "sha256": true, "env": true}

// Field returns the field with that name.
func (s Schema) Field(name string) (Field, bool) {
	for _, f := range s {
		if f.Name == name {
			return f, true
		}
	}
	return Field{}, false
}

// Validate checks the schema itself. The broker runs it on every schema that a
// plugin sends before using it for anything.
func (s Schema) Validate() error {
	if len(s) > maxFields {
		return fmt.Errorf("schema has %d fields, at most %d are allowed", len(s), maxFields)
	}
	seen := map[string]bool{}
	for i, f := range s {
		if !fieldName.MatchString(f.Name) {
			return fmt.Errorf("field %d: name %.70q is not of the form %s", i, f.Name, fieldName)
		}
		if seen[f.Name] {
			return fmt.Errorf("field %q is declared twice", f.Name)
		}
		if reserved[f.Name] {
			return fmt.Errorf("field name %q is reserved for the broker", f.Name)
		}
		seen[f.Name] = true
		if err := f.validate(); err != nil {
			return fmt.Errorf("field %q: %w", f.Name, err)
		}
	}
	return nil
}
