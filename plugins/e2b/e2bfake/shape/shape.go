// Package shape says what JSON must look like, and finds what does not: members that
// are missing or are not known, types, ranges, forms. A null is of no type, as in
// OpenAPI, and names of members are told apart by case.
package shape

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Shape is what a value must be.
type Shape interface {
	check(at string, value any, found *Findings)
}

// Findings are what is not as it should be.
type Findings struct {
	// Wrong are the reasons to refuse the value, and Unknown members that no shape
	// has. Both name their place.
	Wrong, Unknown []string
}

func (f *Findings) wrong(at, format string, arguments ...any) {
	if at == "" {
		at = "the body"
	}
	f.Wrong = append(f.Wrong, at+" "+fmt.Sprintf(format, arguments...))
}

// Err is an error that names all that is wrong.
func (f Findings) Err() error {
	if len(f.Wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(f.Wrong, "; "))
}

// Strict takes members that are not known for wrong.
func (f Findings) Strict() Findings {
	for _, at := range f.Unknown {
		f.Wrong = append(f.Wrong, at+" is not known")
	}
	return f
}

// Check reads one JSON value, behind which there is nothing, and compares it.
func Check(s Shape, text []byte) Findings {
	var found Findings
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		found.wrong("", "is no JSON: %v", err)
		return found
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		found.wrong("", "goes on behind its end")
	}
	s.check("", value, &found)
	return found
}

// Text is a string, of a form unless that is nil.
type Text struct {
	Form *regexp.Regexp
	// Most is its length in bytes; 0 for no limit.
	Most int
}

func (s Text) check(at string, value any, found *Findings) {
	text, ok := value.(string)
	switch {
	case !ok:
		found.wrong(at, "must be a string")
	case s.Most > 0 && len(text) > s.Most:
		found.wrong(at, "must have at most %d bytes", s.Most)
	case s.Form != nil && !s.Form.MatchString(text):
		found.wrong(at, "must be of the form %s", s.Form)
	}
}

// Flag is true or false.
type Flag struct{}

func (Flag) check(at string, value any, found *Findings) {
	if _, ok := value.(bool); !ok {
		found.wrong(at, "must be true or false")
	}
}

// Whole is a whole number between two others.
type Whole struct{ Min, Max int64 }

func (s Whole) check(at string, value any, found *Findings) {
	number, ok := value.(json.Number)
	if !ok {
		found.wrong(at, "must be a whole number")
		return
	}
	if n, err := number.Int64(); err != nil || n < s.Min || n > s.Max {
		found.wrong(at, "must be a whole number from %d to %d", s.Min, s.Max)
	}
}

// List is an array.
type List struct {
	Of Shape
	// Most is how many items it may have; 0 for no limit.
	Most int
}

func (s List) check(at string, value any, found *Findings) {
	all, ok := value.([]any)
	if !ok {
		found.wrong(at, "must be an array")
		return
	}
	if s.Most > 0 && len(all) > s.Most {
		found.wrong(at, "must have at most %d items", s.Most)
	}
	for i, one := range all {
		s.Of.check(fmt.Sprintf("%s[%d]", at, i), one, found)
	}
}

// Map is an object whose members have names of their own.
type Map struct {
	Of Shape
	// Names is the form of names, unless nil.
	Names *regexp.Regexp
	// Most is how many there may be; 0 for no limit.
	Most int
}

func (s Map) check(at string, value any, found *Findings) {
	all, ok := value.(map[string]any)
	if !ok {
		found.wrong(at, "must be an object")
		return
	}
	if s.Most > 0 && len(all) > s.Most {
		found.wrong(at, "must have at most %d members", s.Most)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if s.Names != nil && !s.Names.MatchString(name) {
			found.wrong(at, "has a member %q, whose name must be of the form %s", name, s.Names)
		}
		s.Of.check(join(at, name), all[name], found)
	}
}

// Object is an object with members that are known.
type Object struct {
	Needed, Optional map[string]Shape
}

func (s Object) check(at string, value any, found *Findings) {
	all, ok := value.(map[string]any)
	if !ok {
		found.wrong(at, "must be an object")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.Needed)) {
		if _, given := all[name]; !given {
			found.wrong(join(at, name), "is required")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		member, known := s.Needed[name]
		if !known {
			member, known = s.Optional[name]
		}
		if !known {
			found.Unknown = append(found.Unknown, join(at, name))
			continue
		}
		member.check(join(at, name), all[name], found)
	}
}

// Nullable may be null too.
type Nullable struct{ Shape }

func (s Nullable) check(at string, value any, found *Findings) {
	if value != nil {
		s.Shape.check(at, value, found)
	}
}

// Lacking is a member that the original has and the fake does nothing about: whoever
// asks for it must not believe to have got it.
type Lacking struct{}

func (Lacking) check(at string, _ any, found *Findings) {
	found.wrong(at, "asks for what the fake does not have")
}

// Only is a member of which the fake has one value, such as true: whoever asks for another
// must not believe to have got it.
type Only struct{ Value any }

func (o Only) check(at string, value any, found *Findings) {
	if value != o.Value {
		found.wrong(at, "asks for what the fake does not have")
	}
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}
