package dockerfile

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// Bounds of variables, in bytes. Values are made of others, each of which may be there several
// times: without a bound they double with each line.
const (
	maxWord     = 64 << 10
	maxValue    = 32 << 10
	maxVars     = 256 << 10 // of all names and values together
	maxExpanded = 1 << 20   // that a word may come to, before it is looked at
)

// replacing is the form of ${name/pattern/by}, by which a short word makes a long one.
var replacing = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*/`)

// scope has the variables that stand in for $name.
type scope struct {
	lex *shell.Lex
	// env is what programs get; args are beside it, and below it.
	env, args map[string]string
}

var _ shell.EnvGetter = (*scope)(nil)

// Get implements shell.EnvGetter.
func (s *scope) Get(name string) (string, bool) {
	if value, ok := s.env[name]; ok {
		return value, true
	}
	value, ok := s.args[name]
	return value, ok
}

// Keys implements shell.EnvGetter.
func (s *scope) Keys() []string { return slices.Sorted(maps.Keys(s.all())) }

// all are the variables of a program that is run now.
func (s *scope) all() map[string]string {
	all := maps.Clone(s.args)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, s.env)
	return all
}

// word puts in variables, and takes away quotes.
func (s *scope) word(text string) (string, error) {
	longest := 0
	for _, values := range []map[string]string{s.env, s.args} {
		for _, value := range values {
			longest = max(longest, len(value))
		}
	}
	switch {
	case len(text) > maxWord:
		return "", fmt.Errorf("a word has more than %d bytes", maxWord)
	case replacing.MatchString(text):
		return "", fmt.Errorf("${name/pattern/replacement} is not supported, in %s", quoted(text))
	case strings.Count(text, "$")*longest > maxExpanded:
		return "", fmt.Errorf("variables would make more than %d bytes of a word", maxExpanded)
	}
	made, _, err := s.lex.ProcessWord(text, s)
	if err != nil {
		return "", fmt.Errorf("%s", Line(err.Error()))
	}
	if len(made) > maxValue {
		return "", fmt.Errorf("variables make more than %d bytes of a word", maxValue)
	}
	if strings.ContainsRune(made, 0) {
		return "", fmt.Errorf("a word has a zero byte")
	}
	return made, nil
}

// set gives a variable a value, within the bounds.
func (s *scope) set(in map[string]string, name, value string) error {
	in[name] = value
	total := 0
	for _, values := range []map[string]string{s.env, s.args} {
		for name, value := range values {
			total += len(name) + len(value)
		}
	}
	if total > maxVars {
		return fmt.Errorf("the variables have more than %d bytes", maxVars)
	}
	return nil
}
