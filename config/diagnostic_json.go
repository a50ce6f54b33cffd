package config

import "encoding/json"

// MarshalJSON gives the form for programs: flat, without the excerpt, and without
// a place where a diagnostic is about a whole file. The end is behind the last
// character.
func (d Diagnostic) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Severity  Severity `json:"severity"`
		File      string   `json:"file"`
		Line      int      `json:"line,omitempty"`
		Column    int      `json:"column,omitempty"`
		EndLine   int      `json:"end_line,omitempty"`
		EndColumn int      `json:"end_column,omitempty"`
		Within    string   `json:"within,omitempty"`
		Setting   string   `json:"setting,omitempty"`
		Summary   string   `json:"summary"`
		Detail    string   `json:"detail,omitempty"`
	}{
		d.Severity, d.File, d.Start.Line, d.Start.Column, d.End.Line, d.End.Column,
		d.Within, d.Setting, d.Summary, d.Detail,
	})
}
