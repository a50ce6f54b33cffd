package agentrun

import (
	"encoding/json"
	"strings"
)

// Context is an interpreter in a sandbox that keeps its state: a kernel.
type Context struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

// CodeResult is what became of a piece of code in a context.
type CodeResult struct {
	Results []Item `json:"results"`
}

// Item is a part of it.
type Item struct {
	// Type is stdout, stderr, result, error, endOfExecution, or something new.
	Type string `json:"type"`
	Text string `json:"text"`
	// Data has the forms of a result, by MIME type.
	Data map[string]json.RawMessage `json:"data"`
	// Name, Value and Traceback are of an error, which may have Text instead.
	Name      string          `json:"name"`
	Value     string          `json:"value"`
	Traceback json.RawMessage `json:"traceback"`
	// Status of endOfExecution: ok, or why not.
	Status string `json:"status"`
}

// Trace is what a process would show of an error.
func (i Item) Trace() string {
	var lines []string
	var text string
	switch {
	case json.Unmarshal(i.Traceback, &lines) == nil && len(lines) > 0:
		text = strings.Join(lines, "\n")
	case json.Unmarshal(i.Traceback, &text) == nil && text != "":
	case i.Text != "":
		text = i.Text
	case i.Name != "":
		text = i.Name + ": " + i.Value
	}
	return text
}

// Kind is the name of an error, such as KeyboardInterrupt, and what it says.
func (i Item) Kind() (name, value string) {
	if i.Name != "" {
		return i.Name, i.Value
	}
	lines := strings.Split(strings.TrimSpace(i.Trace()), "\n")
	name, value, _ = strings.Cut(lines[len(lines)-1], ":")
	return strings.TrimSpace(name), strings.TrimSpace(value)
}
