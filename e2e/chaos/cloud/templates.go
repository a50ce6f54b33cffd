package cloud

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Template is what instances can be made of.
type Template struct {
	Name    string    `json:"name"`
	Image   string    `json:"image"`
	Source  string    `json:"source"`
	From    string    `json:"from"`
	Broker  string    `json:"broker"`
	BuiltAt time.Time `json:"built_at"`
}

// BuildRequest is the body of POST /build.
type BuildRequest struct {
	Broker string                   `json:"broker"`
	Build  sdk.BuildTemplateRequest `json:"build"`
}

func (c *Cloud) handleTemplates() {
	c.mux.HandleFunc("POST /build", handle(c, "build", c.build))
	c.mux.HandleFunc("POST /discard", handle(c, "discard", c.discard))
	c.mux.HandleFunc("POST /templates", handle(c, "templates", c.listTemplates))
}

// buildTime is how long a build takes.
const buildTime = 50 * time.Millisecond

func sumOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // there is nothing in it that cannot be
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(text))
}

func (c *Cloud) build(r *http.Request, req BuildRequest) (Template, error) {
	if req.Build.Rootfs != "" {
		return Template{}, refusal{http.StatusUnprocessableEntity, "rootfs: a cloud has no directories of its clients"}
	}
	if req.Build.Source == "" {
		req.Build.Source = sumOf(req.Build.From)
	}
	timer := time.NewTimer(buildTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done(): // nobody wants it any more
		return Template{}, refusal{http.StatusServiceUnavailable, "the build was given up"}
	}
	t := Template{Name: req.Build.Name, Image: sumOf(req), Source: req.Build.Source, From: req.Build.From, Broker: req.Broker, BuiltAt: time.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if there, found := c.templates[t.Image]; found {
		return there, nil
	}
	c.templates[t.Image] = t
	c.note(Effect{Kind: Built, Template: t, Process: r.Header.Get(ProcessHeader)})
	return t, nil
}

func (c *Cloud) discard(r *http.Request, req NamedRequest) (struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, found := c.templates[req.ID]; found {
		delete(c.templates, req.ID)
		c.note(Effect{Kind: Discarded, Template: t, Process: r.Header.Get(ProcessHeader)})
	}
	return struct{}{}, nil
}

func (c *Cloud) listTemplates(_ *http.Request, labels map[string]string) ([]Template, error) {
	list := []Template{}
	for _, t := range c.Templates() {
		if t.Broker == labels[sdk.LabelBroker] {
			list = append(list, t)
		}
	}
	return list, nil
}

// Templates returns what there is.
func (c *Cloud) Templates() (all []Template) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, image := range slices.Sorted(maps.Keys(c.templates)) {
		all = append(all, c.templates[image])
	}
	return all
}
