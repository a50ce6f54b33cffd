package aliyunfake

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun/sign"
)

// Cloud is the service.
type Cloud struct {
	// Keys and Region are what requests must be signed with.
	Keys   sign.Credentials
	Region string
	// PageSize is the most that a page of the list has.
	PageSize int

	server *httptest.Server

	mu        sync.Mutex
	templates map[string]*template
	boxes     map[string]*box
	order     []string // of boxes in the list, as they were made
	made      int
	ended     []string // of boxes in the list
	nonces    map[string]bool
	calls     map[string]int
	faults    []*Fault
	broken    bool
	expelled  bool
}

type template struct {
	input agentrun.TemplateInput
	// gets until it is ready.
	gets int
	fail bool
}

// Start starts the service; Close ends it and all sandboxes.
func Start() *Cloud {
	c := &Cloud{
		Keys:   sign.Credentials{AccessKeyID: "LTAI5tFakeKeyOfTheTests", AccessKeySecret: "SecretOfTheFakeKey0123456789"},
		Region: "cn-hangzhou", PageSize: 100,
		templates: map[string]*template{}, boxes: map[string]*box{}, nonces: map[string]bool{}, calls: map[string]int{},
	}
	c.server = httptest.NewServer(http.HandlerFunc(c.serve))
	return c
}

// URL is the address of both planes.
func (c *Cloud) URL() string { return c.server.URL }

// Close ends the service.
func (c *Cloud) Close() {
	c.server.CloseClientConnections()
	c.mu.Lock()
	boxes := c.boxes
	c.boxes = map[string]*box{}
	c.mu.Unlock()
	for _, b := range boxes {
		if b.status != agentrun.StatusTerminated {
			b.stop()
		}
	}
	c.server.Close()
}

// Break makes the service answer nothing until it is repaired.
func (c *Cloud) Break(broken bool) {
	c.mu.Lock()
	c.broken = broken
	c.mu.Unlock()
	if broken {
		c.server.CloseClientConnections()
	}
}

// Calls counts the calls of an action, those that a fault met too.
func (c *Cloud) Calls(action string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[action]
}

// Sandboxes counts those that live.
func (c *Cloud) Sandboxes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, b := range c.boxes {
		if b.status != agentrun.StatusTerminated {
			n++
		}
	}
	return n
}

// Expire ends all sandboxes, as their idle timeout does.
func (c *Cloud) Expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.boxes {
		c.end(b)
	}
}

func (c *Cloud) end(b *box) {
	if b.status != agentrun.StatusTerminated {
		b.status = agentrun.StatusTerminated
		b.stop()
		// The list tells of those that have ended, for a while.
		if c.ended = append(c.ended, b.id); len(c.ended) > remembered {
			forgotten := c.ended[0]
			c.ended = c.ended[1:]
			c.order = slices.DeleteFunc(c.order, func(id string) bool { return id == forgotten })
		}
	}
}

// Template adds one that is ready.
func (c *Cloud) Template(name, kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.templates[name] = &template{input: agentrun.TemplateInput{TemplateName: name, TemplateType: kind}}
}

// Fault makes one action fail.
type Fault struct {
	// Action is that of the control plane, such as CreateTemplate, or of the data
	// plane: CreateSandbox, GetSandbox, DeleteSandbox, Health, Command, Upload,
	// Download, CreateContext, ListContexts, DeleteContext, ExecuteCode.
	Action string
	// Times is how often; 0 means once. The first Skip calls are spared.
	Times, Skip int
	// After has the action take place before its answer is replaced.
	After bool
	// Status and Body are the answer. Without a status the connection is cut.
	Status int
	Body   string
	Header map[string]string
	// Cut ends the true answer before its end, after that many bytes, if Half does
	// not cut it in the middle. Short says a length that fits what is sent.
	Cut         int
	Half, Short bool
	// Stall keeps the answer back until the caller has gone.
	Stall bool
	// Redirect is where the answer points.
	Redirect string
}

// Fault adds a fault.
func (c *Cloud) Fault(f Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.Times = max(f.Times, 1)
	c.faults = append(c.faults, &f)
}

// Mend forgets faults that nobody has met.
func (c *Cloud) Mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = nil
}

// Expel makes the service take no request for one of its account, as when a token has
// expired, until it does again.
func (c *Cloud) Expel(expelled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expelled = expelled
}

// meet counts a call and finds the fault that it meets.
func (c *Cloud) meet(action string) (Fault, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[action]++
	for _, f := range c.faults {
		if f.Action == action && f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Action == action && f.Times > 0 {
			f.Times--
			return *f, true
		}
	}
	return Fault{}, false
}

func (c *Cloud) isBroken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// remembered is how many sandboxes that have ended are in the list.
const remembered = 6

// skew is how far a clock may be off.
const skew = 15 * time.Minute
