package config

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/sandbox-broker/sandbox-broker/sdk/redact"
)

// sensitive marks what env(), file() and sealed() return, and everything computed
// from it.
type sensitive struct{}

// ordinary marks what env() returns where anybody may read that, and everything computed
// from it. Only a schema can make a secret of it.
type ordinary struct{}

// maxSecretFile bounds what file() reads, in bytes.
const maxSecretFile = 64 << 10

// maxReturned bounds what all calls of functions return together, in bytes: one
// name of a large file can stand in the text ten thousand times.
const maxReturned = 8 << 20

// functions are what an expression of a document may call. What they return is
// kept out of messages.
func (p *parser) functions(d *document) map[string]function.Function {
	result := func(s string) (cty.Value, error) {
		if p.returned += len(s); p.returned > maxReturned {
			return cty.NilVal, fmt.Errorf("env, file and sealed return more than %d MiB in all", maxReturned>>20)
		}
		p.secrets = append(p.secrets, s)
		return cty.StringVal(s).Mark(sensitive{}), nil
	}
	return map[string]function.Function{
		"env": function.New(&function.Spec{
			Params:   []function.Parameter{text("name")},
			VarParam: new(text("default")),
			Type:     function.StaticReturnType(cty.String),
			Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
				name, shown := argument(args[0])
				if len(args) > 2 {
					return cty.NilVal, errors.New("it takes a name and at most one default")
				}
				value, set := p.around.lookupEnv(name)
				switch {
				case set && !utf8.ValidString(value):
					return cty.NilVal, fmt.Errorf("the environment variable %s is not UTF-8", shown)
				case set:
				case len(args) == 2:
					value, _ = argument(args[1])
				default:
					return cty.NilVal, fmt.Errorf("the environment variable %s is not set. Set it, or give a default: env(%s, \"...\")", shown, shown)
				}
				v, err := result(value)
				if err == nil && redact.Ordinary(name, value) {
					p.ordinary = append(p.ordinary, value)
					v = cty.StringVal(value).Mark(ordinary{})
				}
				return v, err
			},
		}),
		"file": function.New(&function.Spec{
			Params: []function.Parameter{text("path")},
			Type:   function.StaticReturnType(cty.String),
			Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
				path, shown := argument(args[0])
				if path == "" {
					return cty.NilVal, errors.New("the path is empty")
				}
				path = absolute(d.dir(), path)
				content, err := p.reading.read(path, path, FileValue, maxSecretFile)
				if err != nil {
					return cty.NilVal, fmt.Errorf("%s: %w", shown, err)
				}
				if !utf8.Valid(content) {
					return cty.NilVal, fmt.Errorf("%s: not UTF-8 text", shown)
				}
				return result(trimNewline(string(content)))
			},
		}),
		"sealed": function.New(&function.Spec{
			Params: []function.Parameter{text("value")},
			Type:   function.StaticReturnType(cty.String),
			Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
				sealed, _ := argument(args[0])
				// It is none, if the value was put there without sealing it.
				p.secrets = append(p.secrets, sealed)
				ring, err := p.keyring()
				if err != nil {
					return cty.NilVal, err
				}
				value, err := ring.Open(sealed)
				if err != nil {
					return cty.NilVal, err
				}
				if !utf8.ValidString(value) {
					return cty.NilVal, errors.New("the value is not UTF-8 text")
				}
				return result(value)
			},
		}),
	}
}

// text is a parameter that may itself be the result of a function.
func text(name string) function.Parameter {
	return function.Parameter{Name: name, Type: cty.String, AllowMarked: true}
}

// argument returns a string and how an error may show it.
func argument(v cty.Value) (value, shown string) {
	plain, marks := v.Unmark()
	if len(marks) > 0 {
		return plain.AsString(), "(hidden)"
	}
	return plain.AsString(), fmt.Sprintf("%q", plain.AsString())
}

// trimNewline removes the one newline that editors and echo leave at the end.
func trimNewline(s string) string {
	s, found := strings.CutSuffix(s, "\n")
	if found {
		s = strings.TrimSuffix(s, "\r")
	}
	return s
}
