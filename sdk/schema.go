package sdk

import (
	"fmt"
	"regexp"
)

// Schema lists the settings of a provider. It is the single source for reading
// the configuration file, for forms, for redaction and for documentation.
//
// The broker asks for it once, before Configure, and checks what the operator has written
// against it: Configure gets settings that obey it, with defaults filled in, and has to
// check only what a schema cannot say. A later version of a provider may add fields that
// are not required; a field that is taken out breaks the files that have it.
type Schema []Field

// Field describes one setting.
type Field struct {
	// Name as written in the configuration, [a-z][a-z0-9_]{0,62}.
	Name string
	// Type of the value. Nothing is converted between strings and numbers.
	Type FieldType
	// Required settings have no default.
	Required bool
	// Secret settings are never shown, logged or echoed.
	Secret bool
	// FileOnly settings are changed in the configuration file, by whoever may
	// write it, and never through the admin API: whoever holds an administrator's
	// token and nothing else shall not gain the rights of the broker's user, nor the
	// provider's keys. Mark every setting that names a program, a path, a socket or a
	// device of this machine, and every address that secrets are sent to or that is
	// fetched from inside this network.
	FileOnly bool
	// Default for a setting that is not given; nil for none. Its Go type is
	// the one that Settings documents for the field's type.
	Default any
	// Items describes the items of a list, which are strings without it: their Type,
	// which may be TypeString, TypeInteger or TypeNumber, and their Options, Min, Max
	// and Pattern. It has nothing else; all other fields are those of the list.
	Items *Field
	// Fields are the settings of a block, at most three deep, blocks of blocks counted;
	// nothing else has them. Secret stands at them, not at the block.
	Fields Schema
	// Repeated blocks may stand several times, Min to Max. With a Min above 0 they must
	// be given; an empty list of them is none.
	Repeated bool
	// Options lists the values allowed, for strings. Forms show them in this order.
	Options []string
	// Min and Max bound integers and numbers, durations (in seconds), and the
	// length of strings and lists. Those of a Repeated block bound how many there are.
	Min, Max *float64
	// Pattern is a regular expression (RE2) that a whole string must match.
	Pattern string
	// Label, Description and Placeholder are for people: the name in a form, what the
	// setting does and in which unit, and an example of a value. At most 4,000 bytes each.
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
	TypeList     FieldType = "list"     // []string; []int64 or []float64 where Items says so
	TypeMap      FieldType = "map"      // map[string]string
	TypeBlock    FieldType = "block"    // Settings; []Settings where it is Repeated
)

// FieldTypes lists all values of FieldType. A later version may have more of them; a plugin
// that uses one needs a broker of that version.
func FieldTypes() []FieldType {
	return []FieldType{TypeString, TypeInteger, TypeNumber, TypeBoolean, TypeDuration, TypeList, TypeMap, TypeBlock}
}

// Bound is a helper for Field.Min and Field.Max, which are pointers so that 0 can be a
// bound.
func Bound(v float64) *float64 { return &v }

// Limits on a schema; the broker refuses a plugin that exceeds them. They are far above
// what a provider block that people fill in can have, and bound what a hostile plugin can
// cost: each pattern is compiled, and each text is shown.
const (
	maxFields        = 200 // those of blocks counted
	maxBlockDepth    = 3
	maxBlocks        = 1000 // of one Repeated field
	maxPatternLength = 1000
	maxOptions       = 1000
	maxTextLength    = 4000
)

var fieldName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// reserved names belong to the broker in a provider block.
var reserved = map[string]bool{"plugin": true, "sha256": true, "env": true}

// Field returns the field with that name, at the top: those of blocks are in the Fields
// of their block.
func (s Schema) Field(name string) (Field, bool) {
	for _, f := range s {
		if f.Name == name {
			return f, true
		}
	}
	return Field{}, false
}

// Validate checks the schema itself. The broker runs it on every schema that a
// plugin sends before using it for anything, and does not start a plugin whose schema it
// refuses; a provider's own test calls it, so that this is known before.
func (s Schema) Validate() error {
	fields := 0
	return s.validate(0, &fields)
}

// validate checks the schema of a block at a depth, 0 for that of a provider, and counts
// the fields.
func (s Schema) validate(depth int, fields *int) error {
	if *fields += len(s); *fields > maxFields {
		return fmt.Errorf("schema has %d fields, at most %d are allowed", *fields, maxFields)
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
		if f.Type != TypeBlock {
			continue
		}
		if depth == maxBlockDepth {
			return fmt.Errorf("field %q: blocks are nested more than %d deep", f.Name, maxBlockDepth)
		}
		if err := f.Fields.validate(depth+1, fields); err != nil {
			return fmt.Errorf("block %q: %w", f.Name, err)
		}
	}
	return nil
}
