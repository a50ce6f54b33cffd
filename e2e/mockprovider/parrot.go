package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// parrot repeats everything that it was given, in many forms and in every text that
// a provider may give. A nil parrot repeats nothing.
type parrot struct {
	logger hclog.Logger
	heard  []string
	// in is where it does so beside the places that do no harm.
	in []string

	mu   sync.Mutex
	next int // of heard, to be logged
	cut  int // where the broker cuts a line, in bytes
}

// newParrot returns nil unless the settings ask for one.
func newParrot(logger hclog.Logger, settings sdk.Settings) *parrot {
	in, _ := settings["parrot"].([]string)
	if len(in) == 0 {
		return nil
	}
	p := &parrot{logger: logger, in: in, cut: 64 << 10}
	p.listen(settings)
	for _, variable := range os.Environ() {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "PARROT_") {
			p.heard = append(p.heard, value)
		}
	}
	return p
}

// listen takes in what settings and the blocks in them say.
func (p *parrot) listen(settings sdk.Settings) {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		switch v := settings[name].(type) {
		case string:
			p.heard = append(p.heard, v)
		case []string:
			p.heard = append(p.heard, v...)
		case map[string]string:
			for key, value := range v {
				p.heard = append(p.heard, key, value)
			}
		case sdk.Settings:
			p.listen(v)
		case []sdk.Settings:
			for _, block := range v {
				p.listen(block)
			}
		}
	}
}

// forms are the ways in which it says one text.
func forms(text string) []string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	bytes := []byte(text)
	return []string{
		text, "Bearer " + text, string(quoted), fmt.Sprintf("%q", text), url.QueryEscape(text), url.PathEscape(text),
		hex.EncodeToString(bytes), strings.ToUpper(hex.EncodeToString(bytes)),
		base64.StdEncoding.EncodeToString(bytes), base64.RawURLEncoding.EncodeToString(bytes),
		base64.StdEncoding.EncodeToString([]byte("u:" + text)), base64.StdEncoding.EncodeToString([]byte("us:" + text + "!")),
	}
}

// speech has all, as far as it fits into so many bytes.
func (p *parrot) speech(most int) string {
	var text strings.Builder
	for _, heard := range p.heard {
		for _, form := range forms(heard) {
			if text.Len()+len(form) >= most {
				return text.String()
			}
			text.WriteString(form + "\n")
		}
	}
	return text.String()
}

func (p *parrot) speaksIn(place string) bool { return p != nil && slices.Contains(p.in, place) }

// fail is the error that it gives in a place, or nil.
func (p *parrot) fail(place string) error {
	switch {
	case p.speaksIn(place + "_panic"):
		panic(p.speech(32 << 10))
	case p.speaksIn(place + "_crash"):
		go panic(p.speech(32 << 10))
		select {} // until the end comes
	case p.speaksIn(place):
		return sdk.FieldErrorf(sdk.CodeInvalidConfig, "secret", "%s", p.speech(16<<10))
	}
	return nil
}

// atOnce is how much goes to the log at once, which takes only so much in a second.
const atOnce = 25

// log says the next part in the log: in messages, values and names, as other programs
// do it, and in a line that is so long that it is cut.
func (p *parrot) log() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for range min(atOnce, len(p.heard)) {
		p.next = (p.next + 1) % len(p.heard)
		heard := p.heard[p.next]
		all := strings.Join(forms(heard), " ")
		p.logger.Warn(all, "value", all, "list", forms(heard), hex.EncodeToString([]byte(heard)), "as a name")
		fmt.Fprintln(realStderr, all)
		fmt.Println(all)
	}
	before := strings.Repeat("x", p.cut-len(p.heard[p.next])/2)
	fmt.Fprintln(realStderr, before+p.heard[p.next]+before)
}

// facts are health details and metadata.
func (p *parrot) facts() map[string]string {
	facts := map[string]string{}
	for some := range slices.Chunk(p.heard, 4) { // there may be a hundred
		facts[fmt.Sprint("fact_", len(facts))] = strings.Join(some, " ")
		facts[base64.StdEncoding.EncodeToString([]byte(some[0]))] = hex.EncodeToString([]byte(some[0]))
	}
	return facts
}

func (p *parrot) health(health *sdk.Health) {
	if p == nil {
		return
	}
	p.log()
	health.Healthy = !p.speaksIn("health")
	health.Reason = p.speech(2 << 10)
	health.Details = p.facts()
	for i, heard := range p.heard {
		health.Metrics = append(health.Metrics, sdk.Metric{
			Name: fmt.Sprint("heard_", i), Help: heard, Kind: sdk.MetricGauge, Labels: map[string]string{"heard": heard},
		})
	}
}

func (p *parrot) instance(instance *sdk.Instance) {
	if p == nil {
		return
	}
	instance.Metadata = p.facts()
}

func (p *parrot) result(result *sdk.ExecuteResult) {
	if p == nil {
		return
	}
	p.log()
	result.Detail = p.speech(2 << 10)
	for i, heard := range p.heard {
		result.Findings = append(result.Findings, sdk.Finding{Line: i + 1, Rule: heard, Message: hex.EncodeToString([]byte(heard))})
	}
}
