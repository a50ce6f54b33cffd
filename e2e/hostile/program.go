package hostile

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"time"
)

//go:embed programs
var files embed.FS

// Program is one hostile program.
type Program struct {
	// Theme is the folder that it stands in, Name its file.
	Theme, Name string
	// Language as the API calls it.
	Language string
	// Must says what must happen.
	Must string
	// Steps are what runs, at least one.
	Steps []Step
}

// Place says where and when a step runs. doc.go tells what each means.
type Place string

// The places of steps. The first step of a program has none.
const (
	NextExecution      Place = "next execution"
	AnotherSession     Place = "another session"
	AnotherTenant      Place = "another tenant"
	AfterDelete        Place = "after delete"
	Meanwhile          Place = "meanwhile"
	MeanwhileElsewhere Place = "meanwhile, elsewhere"
	NextOneShot        Place = "next one-shot"
	OneShotOfAnother   Place = "one-shot of another tenant"
	InACopy            Place = "in a copy"
	InACopyMeanwhile   Place = "in a copy, meanwhile"
)

// Step is one execution with what must come of it.
type Step struct {
	Place Place
	// Code of the step, and Prelude of its language, which stands in front of it.
	Prelude, Code string
	// Status is what the API calls it; Exit is -1 if it does not matter.
	Status string
	Exit   int
	// Stdout and Stderr match the whole output; nil is anything.
	Stdout, Stderr *regexp.Regexp
	// Artifacts matches the lines that describe them; nil is anything.
	Artifacts *regexp.Regexp
	// Result and Arguments are JSON, or "".
	Result, Arguments string
	Env               map[string]string
	Timeout           time.Duration
	Truncated         bool
	// Bytes that stdout must have; -1 if it does not matter.
	Bytes int
	// InstanceMayEnd is set if the instance need not serve on.
	InstanceMayEnd bool
	// Control is how the step proves that it is not blind, or "".
	Control Control
}

// Control is how to show a probe what it must not see elsewhere.
type Control string

// The ways to do so.
const (
	Together  Control = "together"
	InSession Control = "session"
)

// languages by the endings of files.
var languages = map[string]string{".py": "python", ".js": "javascript", ".sh": "bash"}

// Programs reads the corpus, in the order of themes and names. One file that is
// not as it should be spoils all.
func Programs() ([]Program, error) {
	var list []Program
	for _, theme := range Themes {
		paths, err := fs.Glob(files, path.Join("programs", theme.Name, "*"))
		if err != nil {
			return nil, err
		}
		for _, p := range paths {
			program, err := read(p)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p, err)
			}
			program.Theme = theme.Name
			list = append(list, program)
		}
	}
	return list, nil
}

func read(name string) (Program, error) {
	ending := path.Ext(name)
	language := languages[ending]
	if language == "" {
		return Program{}, fmt.Errorf("the ending %q is of no language", ending)
	}
	text, err := files.ReadFile(name)
	if err != nil {
		return Program{}, err
	}
	prelude, err := files.ReadFile("programs/prelude" + ending)
	if err != nil {
		return Program{}, err
	}
	program, err := Parse(language, string(text))
	if err != nil {
		return Program{}, err
	}
	program.Name = path.Base(name)
	for i := range program.Steps {
		program.Steps[i].Prelude = string(prelude)
	}
	return program, nil
}
