package hostile

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// defaultTimeout is long enough for a program to end by itself on a busy machine.
const defaultTimeout = time.Minute

var (
	headerLine = regexp.MustCompile(`^(?:#|//) ([a-z]+): (.*\S)\s*$`)
	stepLine   = regexp.MustCompile(`^(?:#|//) --- (.*\S)\s*$`)
)

// places that a later step may name.
var places = []Place{NextExecution, AnotherSession, AnotherTenant, AfterDelete, Meanwhile, MeanwhileElsewhere, NextOneShot, OneShotOfAnother, InACopy, InACopyMeanwhile}

// Parse reads a program without its prelude. It takes nothing that doc.go does not
// describe, for what is misspelt would not be checked.
func Parse(language, text string) (Program, error) {
	p := Program{Language: language}
	place, lines := Place(""), []string(nil)
	add := func() error {
		step, must, err := parseStep(place, lines)
		switch {
		case err != nil:
			return fmt.Errorf("step %d: %w", len(p.Steps)+1, err)
		case must == "" && len(p.Steps) == 0:
			return errors.New("must is missing")
		case must != "" && len(p.Steps) > 0:
			return errors.New("must is said twice")
		}
		p.Must = cmp.Or(p.Must, must)
		p.Steps = append(p.Steps, step)
		return nil
	}
	for line := range strings.Lines(text) {
		match := stepLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if match == nil {
			lines = append(lines, line)
			continue
		}
		if err := add(); err != nil {
			return Program{}, err
		}
		place, lines = Place(match[1]), nil
		if !slices.Contains(places, place) {
			return Program{}, fmt.Errorf("there is no place %q", place)
		}
	}
	if err := add(); err != nil {
		return Program{}, err
	}
	return p, nil
}

// parseStep reads one header and the code below it.
func parseStep(place Place, lines []string) (Step, string, error) {
	s := Step{Place: place, Exit: -1, Bytes: -1, Env: map[string]string{}, Timeout: defaultTimeout}
	must, given := "", map[string]bool{}
	for len(lines) > 0 {
		match := headerLine.FindStringSubmatch(strings.TrimSuffix(lines[0], "\n"))
		if match == nil {
			break
		}
		lines = lines[1:]
		key, value := match[1], match[2]
		if given[key] && key != "env" {
			return Step{}, "", fmt.Errorf("%s is said twice", key)
		}
		given[key] = true
		if key == "must" {
			must = value
			continue
		}
		if err := s.set(key, value); err != nil {
			return Step{}, "", fmt.Errorf("%s: %w", key, err)
		}
	}
	s.Code = strings.Join(lines, "")
	return s, must, s.complete()
}

// set takes one line of a header.
func (s *Step) set(key, value string) (err error) {
	switch key {
	case "status":
		s.Status = value
	case "exit":
		s.Exit, err = strconv.Atoi(value)
	case "stdout":
		s.Stdout, err = whole(value)
	case "stderr":
		s.Stderr, err = whole(value)
	case "result":
		s.Result, err = value, validJSON(value)
	case "artifacts":
		s.Artifacts, err = whole(value)
	case "arguments":
		s.Arguments, err = value, validJSON(value)
	case "env":
		name, content, ok := strings.Cut(value, "=")
		if !ok {
			return fmt.Errorf("%q is not NAME=value", value)
		}
		s.Env[name] = content
	case "timeout":
		var seconds int
		seconds, err = strconv.Atoi(value)
		s.Timeout = time.Duration(seconds) * time.Second
	case "bytes":
		s.Bytes, err = strconv.Atoi(value)
	case "truncated":
		s.Truncated, err = value == "yes", only(value, "yes")
	case "instance":
		s.InstanceMayEnd, err = value == "may end", only(value, "may end")
	case "control":
		s.Control, err = Control(value), only(value, string(Together), string(InSession))
	default:
		return errors.New("there is no such key")
	}
	return err
}

// complete checks what belongs together and sets what follows from it.
func (s *Step) complete() error {
	nothing, err := whole("")
	if err != nil {
		return err
	}
	switch {
	case s.Stdout == nil:
		return errors.New("stdout is missing")
	case strings.TrimSpace(s.Code) == "":
		return errors.New("there is no code")
	case s.Control != "" && s.Place == "":
		return errors.New("the first step has nothing to control")
	case s.Control == "" && s.Stdout.MatchString("clean"):
		return errors.New("who reports clean and no more needs a control, or must print what shows that it looked")
	}
	switch s.Status {
	case "succeeded":
		if s.Exit > 0 {
			return errors.New("what succeeds ends with exit code 0")
		}
		s.Exit = 0
		if s.Stderr == nil {
			s.Stderr = nothing
		}
	case "failed":
		if s.Exit <= 0 || s.Stderr == nil {
			return errors.New("a failure needs exit and stderr")
		}
	case "timeout", "out_of_memory":
	default:
		return fmt.Errorf("the status %q is none", s.Status)
	}
	return nil
}

// whole compiles an expression for all of an output, less its last line end.
func whole(expression string) (*regexp.Regexp, error) {
	return regexp.Compile(`^(?:` + expression + `)\n?$`)
}

func validJSON(value string) error {
	if !json.Valid([]byte(value)) {
		return errors.New("this is not JSON")
	}
	return nil
}

func only(value string, allowed ...string) error {
	if !slices.Contains(allowed, value) {
		return fmt.Errorf("%q is none of %q", value, allowed)
	}
	return nil
}
