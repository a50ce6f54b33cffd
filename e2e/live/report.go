package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
)

// report is what a user can send: versions, cases and timings.
type report struct {
	Provider       string              `json:"provider"`
	Revision       string              `json:"revision"`
	Go             string              `json:"go"`
	System         string              `json:"system"`
	Started        time.Time           `json:"started"`
	Seconds        float64             `json:"seconds"`
	Minutes        float64             `json:"limit_minutes"`
	Budget         float64             `json:"limit_cost"`
	PricePerSecond float64             `json:"price_per_second"`
	Currency       string              `json:"currency,omitempty"`
	PriceSource    string              `json:"price_source"`
	SandboxSeconds float64             `json:"sandbox_seconds"`
	Cost           float64             `json:"cost"`
	Stopped        string              `json:"stopped,omitempty"`
	Left           string              `json:"left,omitempty"`
	Suite          providertest.Report `json:"suite"`
	Broker         []step              `json:"broker"`
}

func (r report) failed() bool {
	failed := r.Suite.Failed > 0 || r.Suite.Passed == 0 || r.Stopped != "" || r.Left != ""
	for _, s := range r.Broker {
		failed = failed || s.Error != ""
	}
	return failed
}

func (r report) brokerSummary() string {
	failed := 0
	for _, s := range r.Broker {
		if s.Error != "" {
			failed++
		}
	}
	return fmt.Sprintf("%d steps, %d failed", len(r.Broker), failed)
}

// write makes a file in a directory, without secrets.
func (r report) write(dir string, clean cleaner) (string, error) {
	r.Revision = "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				r.Revision = s.Value
			}
		}
	}
	r.Go, r.System = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
	r.Stopped, r.Left = clean.text(r.Stopped), clean.text(r.Left)
	r.Suite.Name, r.Suite.Version = clean.text(r.Suite.Name), clean.text(r.Suite.Version)
	r.Suite.Cases = slices.Clone(r.Suite.Cases)
	for i, c := range r.Suite.Cases {
		r.Suite.Cases[i].Reason = clean.text(c.Reason)
	}
	r.Broker = slices.Clone(r.Broker)
	for i, s := range r.Broker {
		r.Broker[i].Error = clean.text(s.Error)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", err
	}
	// Nothing should be left to blank here.
	if text = []byte(clean.known.Text(string(text))); !json.Valid(text) {
		return "", errors.New("the report was not written: without the secrets it is no JSON any more")
	}
	file := filepath.Join(dir, fmt.Sprintf("%s-%s.json", r.Provider, r.Started.Format("20060102-150405")))
	return file, os.WriteFile(file, append(text, '\n'), 0o600)
}
