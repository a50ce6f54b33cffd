package providertest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Status is what became of a case.
type Status string

// The values of Status.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Result is what became of a case.
type Result struct {
	Case
	Status Status `json:"status"`
	// Reason says why the case failed or was skipped. It holds none of the
	// secrets among the settings.
	Reason string `json:"reason,omitempty"`
	// Duration of the case, in JSON in seconds.
	Duration time.Duration `json:"-"`
}

// MarshalJSON writes the duration in seconds.
func (r Result) MarshalJSON() ([]byte, error) {
	type plain Result
	return json.Marshal(struct {
		plain
		Seconds float64 `json:"seconds"`
	}{plain(r), r.Duration.Seconds()})
}

// Report is the outcome of a run.
type Report struct {
	// Name, Version, Languages and Capabilities are what the provider said of
	// itself; empty if it did not start.
	Name         string           `json:"name"`
	Version      string           `json:"version"`
	Languages    []sdk.Language   `json:"languages"`
	Capabilities []sdk.Capability `json:"capabilities"`
	// Cases in the order in which they ran, skipped ones included.
	Cases   []Result `json:"cases"`
	Passed  int      `json:"passed"`
	Failed  int      `json:"failed"`
	Skipped int      `json:"skipped"`
}

// Summary is the last line of a report.
func (r Report) Summary() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", r.Passed, r.Failed, r.Skipped)
}

func (r *Report) add(result Result) {
	r.Cases = append(r.Cases, result)
	switch result.Status {
	case Passed:
		r.Passed++
	case Failed:
		r.Failed++
	case Skipped:
		r.Skipped++
	}
}
