package interpreter

import (
	"bytes"
	"encoding/base64"
	"encoding/json"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/e2bhttp"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/kernel"
)

// line is what the server writes, one JSON object a line.
type line struct {
	Type      string `json:"type"`
	Text      string `json:"text"`
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
	Main      bool   `json:"is_main_result"`
}

// parse reads a line. Kinds that are not known, such as keepalive, give no event.
func parse(text []byte) (ev *kernel.Event, end bool, err error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return nil, false, nil
	}
	var l line
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, false, &e2bhttp.Error{Message: "a line that is no JSON", NotJSON: true}
	}
	// A result may have fields of any type; what does not fit is left out.
	for name, into := range map[string]any{
		"type": &l.Type, "text": &l.Text, "name": &l.Name, "value": &l.Value, "traceback": &l.Traceback, "is_main_result": &l.Main,
	} {
		if raw, ok := fields[name]; ok {
			_ = json.Unmarshal(raw, into)
		}
	}
	switch l.Type {
	case "stdout":
		return &kernel.Event{Stdout: []byte(l.Text)}, false, nil
	case "stderr":
		return &kernel.Event{Stderr: []byte(l.Text)}, false, nil
	case "error":
		return &kernel.Event{Error: &kernel.Error{Name: l.Name, Value: l.Value, Traceback: l.Traceback}}, false, nil
	case "result":
		return &kernel.Event{Value: &kernel.Value{Main: l.Main, Forms: forms(fields)}}, false, nil
	case "end_of_execution":
		return nil, true, nil
	default:
		return nil, false, nil
	}
}

// texts and binaries are the forms of a result whose MIME type has a short name.
var (
	texts = map[string]string{
		"text": "text/plain", "html": "text/html", "markdown": "text/markdown", "svg": "image/svg+xml",
		"latex": "text/latex", "javascript": "application/javascript",
	}
	binaries = map[string]string{"png": "image/png", "jpeg": "image/jpeg", "pdf": "application/pdf"}
)

// DataType and ChartType are forms that E2B has made up: a table by columns, and what
// is in a figure.
const (
	DataType  = "application/vnd.e2b.data+json"
	ChartType = "application/vnd.e2b.chart+json"
)

var documents = map[string]string{"json": "application/json", "data": DataType, "chart": ChartType}

func forms(fields map[string]json.RawMessage) map[string][]byte {
	found := map[string][]byte{}
	for name, raw := range fields {
		if kind, ok := documents[name]; ok && string(raw) != "null" {
			found[kind] = raw
			continue
		}
		var text string
		if string(raw) == "null" || json.Unmarshal(raw, &text) != nil {
			continue
		}
		if kind, ok := texts[name]; ok {
			found[kind] = []byte(text)
		}
		if kind, ok := binaries[name]; ok {
			if data, err := base64.StdEncoding.DecodeString(text); err == nil {
				found[kind] = data
			}
		}
	}
	var extra map[string]json.RawMessage
	if json.Unmarshal(fields["extra"], &extra) == nil {
		for kind, raw := range extra {
			var text string
			if json.Unmarshal(raw, &text) == nil {
				found[kind] = []byte(text)
			} else {
				found[kind] = raw
			}
		}
	}
	return found
}
