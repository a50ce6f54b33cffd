// Package aliyunfake is an AgentRun for tests: both planes on one address, with templates and
// sandboxes that live and die as the service's do, and code that really runs, under
// bubblewrap. It is written from the service's documentation and the official
// clients, and knows nothing of the provider: not even its types or its signatures.
//
// It is as strict as the service, and stricter where documents leave it open: HTTPS with
// HTTP/2 on offer, paths to the byte, signatures over all that was sent, bodies without a
// field more than is published, the limits of the service, clocks of idle sandboxes. Options
// are what the documents leave open; faults make it lie: see Fault.
package aliyunfake

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Options are what documents leave open about the service.
type Options struct {
	// Plain is HTTP without TLS.
	Plain bool
	// User has commands and kernels run as an ordinary user, who may not make
	// directories at the top. Sudo lets that user do so by sudo, without a password.
	User, Sudo bool
	// Notebook gives JavaScript kernels the manners of IJavascript: what a cell
	// prints comes at its end, a name is declared once, and a kernel that ends is not
	// told of.
	Notebook bool
}

// Cloud is the service.
type Cloud struct {
	// Keys and Region are what requests must be signed with.
	Keys   Keys
	Region string
	// PageSize is the most that a page of the list has.
	PageSize int

	server  *httptest.Server
	options Options

	mu        sync.Mutex
	templates map[string]*template
	boxes     map[string]*box
	order     []string // of boxes in the list, as they were made
	made      int
	ended     []string // of boxes in the list
	nonces    map[string]bool
	calls     map[string]int
	faults    []*Fault
	flights   map[string]*flight
	ahead     time.Duration
	broken    bool
	expelled  bool
}

type template struct {
	input templateInput
	// gets until it is ready.
	gets int
	fail bool
}

// Start starts the service, over HTTPS and with HTTP/2 on offer; Close ends it and all
// sandboxes.
func Start() *Cloud { return StartWith(Options{}) }

// StartWith starts a service of another kind.
func StartWith(options Options) *Cloud {
	c := &Cloud{
		Keys:   Keys{AccessKeyID: "LTAI5tFakeKeyOfTheTests", AccessKeySecret: "SecretOfTheFakeKey0123456789"},
		Region: "cn-hangzhou", PageSize: 100, options: options,
		templates: map[string]*template{}, boxes: map[string]*box{}, nonces: map[string]bool{}, calls: map[string]int{}, flights: map[string]*flight{},
	}
	c.server = httptest.NewUnstartedServer(http.HandlerFunc(c.serve))
	if options.Plain {
		c.server.Start()
		return c
	}
	c.server.EnableHTTP2 = true
	c.server.StartTLS()
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
		if b.status != statusTerminated {
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
func (c *Cloud) Sandboxes() int { return len(c.Living()) }

// Living are the IDs of those that live.
func (c *Cloud) Living() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep()
	var all []string
	for _, b := range c.boxes {
		if b.status != statusTerminated {
			all = append(all, b.id)
		}
	}
	return all
}

// Expire ends all sandboxes, as their idle timeout does.
func (c *Cloud) Expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.boxes {
		c.end(b)
	}
}

// End ends one sandbox, as its owner could.
func (c *Cloud) End(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.boxes[id]; b != nil {
		c.end(b)
	}
}

// Forward moves the clocks of the sandboxes on. Those that nobody has used for their
// idle timeout end, paused ones excepted.
func (c *Cloud) Forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
	c.sweep()
}

// IdleTimeouts are those of the sandboxes that live.
func (c *Cloud) IdleTimeouts() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []time.Duration
	for _, b := range c.boxes {
		if b.status != statusTerminated {
			all = append(all, b.idle)
		}
	}
	return all
}

func (c *Cloud) now() time.Time { return time.Now().Add(c.ahead) }

func (c *Cloud) sweep() {
	for _, b := range c.boxes {
		if b.status == statusReady && c.now().Sub(b.used) > b.idle || c.now().Sub(b.created) > lifetime {
			c.end(b)
		}
	}
}

func (c *Cloud) end(b *box) {
	if b.status != statusTerminated {
		b.status = statusTerminated
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
	c.templates[name] = &template{input: templateInput{TemplateName: name, TemplateType: kind}}
}

// Fault makes one action fail.
type Fault struct {
	// Action is that of the control plane, such as CreateTemplate, or of the data
	// plane: CreateSandbox, GetSandbox, DeleteSandbox, Health, Command, Upload,
	// Download, CreateContext, ListContexts, DeleteContext, ExecuteCode. "*" is any.
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
		if f.Action != action && f.Action != "*" {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Times > 0 {
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

// lifetime is how long a sandbox lives at most.
const lifetime = 6 * time.Hour

// skew is how far a clock may be off.
const skew = 15 * time.Minute

// trustVariable names the file with the certificates that programs trust.
const trustVariable = "SSL_CERT_FILE"

// trusted is that file, which must not be closed. It has no name, so that nothing is left
// of it.
var trusted *os.File

// Trust makes this process, and those that it starts, trust all fakes beside what they
// trust already. It comes before anything looks at the certificates of the system, which
// are read once.
func Trust() error {
	var certificates bytes.Buffer
	if file := os.Getenv(trustVariable); file != "" {
		before, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		certificates.Write(before)
	}
	server := httptest.NewTLSServer(http.NotFoundHandler()) // all have the same one
	defer server.Close()
	err := pem.Encode(&certificates, &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	fd, failed := unix.MemfdCreate("aliyunfake", unix.MFD_CLOEXEC)
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	trusted = os.NewFile(uintptr(fd), "aliyunfake")
	if _, err := trusted.Write(certificates.Bytes()); err != nil {
		return err
	}
	return os.Setenv(trustVariable, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd))
}
