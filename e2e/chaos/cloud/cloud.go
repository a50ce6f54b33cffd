package cloud

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Options of Start.
type Options struct {
	// Name of the cloud, which each of its effects carries.
	Name string
	// Address at which it answers, after each time that it was down too. Port 0 is any.
	Address string
	// Seed by which it draws its lies.
	Seed uint64
}

// Cloud is a running service.
type Cloud struct {
	name, address string
	mux           *http.ServeMux

	mu     sync.Mutex
	server *httptest.Server // nil while it is down
	// closing is closed when the server goes down.
	closing chan struct{}

	random *rand.Rand
	lies   Lies
	once   map[string]Lie
	told   map[Lie]int
	log    []Effect
	alive  map[string]Instance
	// insides is what there is in those that are alive.
	insides map[string]*inside
	// shown is from when on the list has an instance, ghosts until when it still
	// has one that was destroyed.
	shown  map[string]time.Time
	ghosts map[string]ghost
	keys   map[string]string
	made   int
	// snapshots, volumes and templates by their names.
	snapshots map[string]*snapshot
	volumes   map[string]*volume
	templates map[string]Template
}

type ghost struct {
	instance Instance
	until    time.Time
}

// Start starts a cloud.
func Start(o Options) (*Cloud, error) {
	c := &Cloud{
		name: o.Name, address: o.Address, mux: http.NewServeMux(),
		random: rand.New(rand.NewPCG(o.Seed, 1)),
		once:   map[string]Lie{}, told: map[Lie]int{},
		alive: map[string]Instance{}, insides: map[string]*inside{}, shown: map[string]time.Time{}, ghosts: map[string]ghost{}, keys: map[string]string{},
		snapshots: map[string]*snapshot{}, volumes: map[string]*volume{}, templates: map[string]Template{},
	}
	c.mux.HandleFunc("POST /create", handle(c, "create", c.create))
	c.mux.HandleFunc("POST /execute", handle(c, "execute", c.execute))
	c.mux.HandleFunc("POST /destroy", handle(c, "destroy", c.destroy))
	c.mux.HandleFunc("POST /list", handle(c, "list", c.list))
	c.handleInside()
	c.handleSnapshots()
	c.handleVolumes()
	c.handleTemplates()
	err := c.Up()
	if err == nil {
		c.address = c.server.Listener.Addr().String() // with the port, where none was chosen
	}
	return c, err
}

// Name of the cloud.
func (c *Cloud) Name() string { return c.name }

// URL is where it answers.
func (c *Cloud) URL() string { return "http://" + c.address }

// refusal is an answer other than 200.
type refusal struct {
	status int
	text   string
}

func (r refusal) Error() string { return r.text }

// handle decodes a call, and lies if it is time to.
func handle[Request, Answer any](c *Cloud, path string, do func(r *http.Request, req Request) (Answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var req Request
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		lie := c.lie(path)
		if lie == Full || strings.HasSuffix(string(lie), " before") {
			c.goWrong(w, r, lie)
			return
		}
		if path == "destroy" {
			c.dally(r)
		}
		if r.Context().Err() != nil {
			panic(http.ErrAbortHandler) // the client has gone before it could have an effect
		}
		answer, err := do(r, req)
		if path == "create" {
			c.dally(r)
		}
		if lie != "" {
			c.goWrong(w, r, lie)
			return
		}
		if refused, ok := err.(refusal); ok { //nolint:errorlint // they are made here
			http.Error(w, refused.text, refused.status)
			return
		}
		_ = json.NewEncoder(w).Encode(answer) // the client may have gone
	}
}

func (c *Cloud) create(r *http.Request, req CreateRequest) (Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i, found := c.alive[c.keys[req.Key]]; found && req.Key != "" && !c.lies.NoKeys {
		return i, nil
	}
	if _, found := c.templates[req.Image]; req.Image != "" && !found {
		return Instance{}, refusal{http.StatusUnprocessableEntity, "template: it was not built"}
	}
	if err := c.mount(req.Volumes); err != nil {
		return Instance{}, err
	}
	in, err := c.opened(req.Snapshot)
	if err != nil {
		return Instance{}, err
	}
	in.mounts = req.Volumes
	c.made++
	i := Instance{ID: fmt.Sprintf("cloud-%06d", c.made), Labels: req.Labels, CreatedAt: time.Now(), Template: req.Template, Image: req.Image}
	c.alive[i.ID], c.insides[i.ID], c.keys[req.Key] = i, in, i.ID
	c.shown[i.ID] = i.CreatedAt.Add(upTo(c.random, c.lies.ListLate))
	c.note(Effect{Kind: Created, Instance: i, Process: r.Header.Get(ProcessHeader)})
	return i, nil
}

// StrayProcess is who made strays.
const StrayProcess = "stray"

// Stray makes an instance that carries a broker's label, which that broker knows
// nothing of.
func (c *Cloud) Stray(broker string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made++
	i := Instance{ID: fmt.Sprintf("cloud-%06d", c.made), Labels: map[string]string{sdk.LabelBroker: broker}, CreatedAt: time.Now(), Template: "wait"}
	c.alive[i.ID], c.insides[i.ID] = i, newInside()
	c.note(Effect{Kind: Created, Instance: i, Process: StrayProcess})
}

func (c *Cloud) destroy(r *http.Request, req DestroyRequest) (struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, found := c.alive[req.Instance]
	if !found {
		return struct{}{}, nil
	}
	delete(c.alive, i.ID)
	delete(c.insides, i.ID)
	delete(c.shown, i.ID)
	if late := upTo(c.random, c.lies.DeleteLate); late > 0 {
		c.ghosts[i.ID] = ghost{i, time.Now().Add(late)}
	}
	c.note(Effect{Kind: Gone, Instance: i, Process: r.Header.Get(ProcessHeader)})
	return struct{}{}, nil
}

// list shows what carries the broker's label.
func (c *Cloud) list(_ *http.Request, labels map[string]string) ([]Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, list := time.Now(), []Instance{}
	for _, id := range slices.Sorted(maps.Keys(c.alive)) {
		if i := c.alive[id]; i.Labels[sdk.LabelBroker] == labels[sdk.LabelBroker] && !now.Before(c.shown[id]) {
			list = append(list, i)
		}
	}
	for id, g := range c.ghosts {
		switch {
		case now.After(g.until):
			delete(c.ghosts, id)
		case g.instance.Labels[sdk.LabelBroker] == labels[sdk.LabelBroker]:
			list = append(list, g.instance)
		}
	}
	return list, nil
}

// execute answers with the program that it has run.
func (c *Cloud) execute(r *http.Request, req ExecuteRequest) (Program, error) {
	program, err := programIn(req.Code)
	if err != nil {
		return program, err
	}
	effect := Effect{Kind: Executed, Execution: req.Execution, Program: program, Process: r.Header.Get(ProcessHeader), Broker: r.Header.Get(BrokerHeader)}
	c.mu.Lock()
	stop := c.closing
	i, found := c.alive[req.Instance]
	switch in := c.insides[req.Instance]; {
	case !found:
		err = refusal{http.StatusNotFound, "no such instance"}
	case in.paused:
		err = errPaused
	case req.Context != "" && !in.hasContext(req.Context):
		err = refusal{http.StatusGone, "no such context"}
	default:
		effect.Instance = i
		c.note(effect)
	}
	c.mu.Unlock()
	if err != nil {
		return program, err
	}
	timer := time.NewTimer(time.Duration(program.MS) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	case <-stop:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	effect.Kind = Ended
	c.note(effect)
	return program, nil
}

// kill kills a client. One that says it is this very process, or none, is left alone.
func (c *Cloud) kill(process string) {
	c.Killing(process)
	if pid, err := strconv.Atoi(process); err == nil && pid > 1 && pid != os.Getpid() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}
