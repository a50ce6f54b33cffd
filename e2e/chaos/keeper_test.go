package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// keeping are the tenants whose clients keep things: snapshots and volumes, and instances of
// what is built for them.
var keeping = []string{"amber", "jade"}

// Quotas of each of these.
const (
	maxSnapshots   = 5
	maxVolumes     = 5
	maxVolumeBytes = 6 * volumeBytes
	volumeBytes    = 1 << 20
)

const (
	// statePath is a file of every instance of a keeper, and inVolume is one in every volume,
	// which an instance finds below mountPath.
	statePath = "/workspace/state"
	inVolume  = "/state"
	mountPath = "/data"
	// shortLife is that of snapshots that expire before they are deleted.
	shortLife = 2 * time.Second
	// forkLabel is the label that the copies of a fork carry, and no others.
	forkLabel = "fork"
	// copies is how many of a fork are asked for.
	copies = 2
)

// keeper is a client that keeps what is in its instances: as snapshots that others go on
// from, by forks, and in volumes. It speaks the broker's own API.
type keeper struct {
	*client
	// boxes are its instances, by ID.
	boxes map[string]*keptBox
	// snapshots and volumes are those that it was told of and has not ended.
	snapshots []keptSnapshot
	volumes   []keptVolume
}

// keptBox is an instance of a keeper, with the volume that it has, and what its file holds:
// empty for what nobody knows.
type keptBox struct{ state, volume string }

// keptSnapshot is one, with what the file of its original held.
type keptSnapshot struct{ id, state string }

// keptVolume is one, with what its file holds: empty for no file.
type keptVolume struct {
	name, state string
	// unsure says that a write to it had no answer.
	unsure bool
}

func newKeeper(c *client) *keeper { return &keeper{client: c, boxes: map[string]*keptBox{}} }

// act does one thing.
func (c *keeper) act(ctx context.Context) {
	c.count++
	switch n := c.random.IntN(100); {
	case n < 12 && len(c.held) < 1:
		c.begin(ctx)
	case n < 20:
		c.change(ctx)
	case n < 32:
		c.snapshot(ctx)
	case n < 44:
		c.goOn(ctx)
	case n < 52:
		c.fork(ctx)
	case n < 60 && len(c.snapshots) > 0:
		c.drop(ctx)
	case n < 68 && len(c.volumes) < 1:
		c.allot(ctx)
	case n < 76:
		c.fill(ctx)
	case n < 82:
		c.attach(ctx)
	case n < 86 && len(c.volumes) > 0:
		c.free(ctx)
	case n < 90:
		c.ofTemplate(ctx)
	case n < 93 && len(c.held) > 0:
		c.destroy(ctx)
	case n < 96:
		c.lists()
	case n < 98:
		c.one(event{Operation: opUsage}, http.MethodGet, "/api/v1/usage", nil)
	default:
		c.stealKept()
	}
}

// make asks for an instance until there is an answer, and takes down what its file holds.
func (c *keeper) make(ctx context.Context, e event, body map[string]any, box keptBox) string {
	e.Operation = opCreate
	e = c.persist(ctx, e, "/api/v1/instances", body)
	c.keep(e)
	if !e.acknowledged() {
		return ""
	}
	c.boxes[e.Told] = &box
	return e.Told
}

// begin makes a fresh instance with a file.
func (c *keeper) begin(ctx context.Context) {
	if id := c.make(ctx, event{Key: c.name("key")}, map[string]any{}, keptBox{}); id != "" {
		c.write(ctx, id)
	}
}

// plain is an instance without a volume whose file is known; empty for none.
func (c *keeper) plain() string {
	for _, id := range c.held {
		if box := c.boxes[id]; box != nil && box.volume == "" && box.state != "" {
			return id
		}
	}
	return ""
}

func (c *keeper) change(ctx context.Context) {
	if id := c.plain(); id != "" {
		c.write(ctx, id)
	}
}

// write puts something else into the file of an instance.
func (c *keeper) write(ctx context.Context, id string) {
	box := c.boxes[id]
	box.state = ""
	token := c.name("state")
	e := event{Operation: opWrite, Instance: id, Path: statePath, Token: token}
	if c.put(ctx, e, "/api/v1/instances/"+id, statePath).acknowledged() {
		box.state = token
	}
}

// put writes a file, again and again as long as there is no clear answer: the same content
// twice is the same as once.
func (c *keeper) put(ctx context.Context, e event, owner, path string) event {
	req := call{
		Method: http.MethodPut, Path: owner + "/files/content?path=" + url.QueryEscape(path), Body: []byte(e.Token),
		Header: map[string]string{"Authorization": "Bearer " + tokenOf(c.tenant), "Content-Type": "application/octet-stream"},
	}
	return c.again(ctx, e, true, func(e event) event { return c.ask(e, req, readOwn) })
}

// get reads a file.
func (c *keeper) get(ctx context.Context, e event, owner, path string) {
	req := call{
		Method: http.MethodGet, Path: owner + "/files/content?path=" + url.QueryEscape(path),
		Header: map[string]string{"Authorization": "Bearer " + tokenOf(c.tenant)},
	}
	c.again(ctx, e, true, func(e event) event {
		return c.ask(e, req, func(e *event, a answer) {
			if e.Printed = string(a.Body); !e.answered() {
				readOwn(e, a)
			}
		})
	})
}

// tells has a copy tell what its file holds, which is one of these.
func (c *keeper) tells(ctx context.Context, id, of string, expected ...string) {
	c.get(ctx, event{Operation: opTell, Instance: id, Path: statePath, Kept: of, List: expected}, "/api/v1/instances/"+id, statePath)
}

// readKept reads what an answer says of a snapshot, or of a volume.
func readKept(e *event, a answer) {
	var told struct {
		ID        string    `json:"id"`
		Name      string    `json:"name"`
		ExpiresAt time.Time `json:"expires_at"`
		Snapshots []struct {
			ID string `json:"id"`
		} `json:"snapshots"`
		Volumes []struct {
			Name string `json:"name"`
		} `json:"volumes"`
	}
	readOwn(e, a)
	e.Told = ""
	if !e.answered() || !a.into(&told) {
		return
	}
	switch e.Operation {
	case opSnapshot:
		e.Kept, e.Expires = told.ID, told.ExpiresAt
	case opSnapshots:
		for _, s := range told.Snapshots {
			e.List = append(e.List, s.ID)
		}
	case opVolumes:
		for _, v := range told.Volumes {
			e.List = append(e.List, v.Name)
		}
	}
}

// asks sends a request about what is kept, again if it may be repeated.
func (c *keeper) asks(ctx context.Context, e event, method, path string, body any, repeatable bool) event {
	req := call{Method: method, Path: path, Header: map[string]string{"Authorization": "Bearer " + tokenOf(c.tenant)}}
	if body != nil {
		req.body(body)
	}
	if e.Key != "" {
		req.Header[keyHeader] = e.Key
	}
	return c.again(ctx, e, repeatable, func(e event) event { return c.ask(e, req, readKept) })
}

func (c *keeper) snapshot(ctx context.Context) {
	id := c.plain()
	if id == "" {
		return
	}
	body := map[string]any{}
	if c.random.IntN(3) == 0 {
		body["ttl"] = shortLife.Seconds()
	}
	e := event{Operation: opSnapshot, Key: c.key(), Instance: id}
	e = c.asks(ctx, e, http.MethodPost, "/api/v1/instances/"+id+"/snapshots", body, e.Key != "")
	if e.acknowledged() && e.Kept != "" {
		c.snapshots = append(c.snapshots, keptSnapshot{e.Kept, c.boxes[id].state})
	}
}

// goOn makes an instance that goes on from a snapshot.
func (c *keeper) goOn(ctx context.Context) {
	if len(c.snapshots) == 0 {
		return
	}
	from := c.snapshots[c.random.IntN(len(c.snapshots))]
	id := c.make(ctx, event{Key: c.name("key"), Kept: from.id}, map[string]any{"snapshot": from.id}, keptBox{state: from.state})
	if id == "" {
		return
	}
	c.tells(ctx, id, from.id, from.state)
	c.end(ctx, id)
}

// end destroys an instance.
func (c *keeper) end(ctx context.Context, id string) {
	if at := slices.Index(c.held, id); at >= 0 {
		c.held = slices.Delete(c.held, at, at+1)
	}
	delete(c.boxes, id)
	for range retries {
		e := c.one(event{Operation: opDestroy, Instance: id}, http.MethodDelete, "/api/v1/instances/"+id, nil)
		if e.acknowledged() || e.Status == http.StatusNotFound || ctx.Err() != nil {
			return
		}
		pause(ctx, betweenTries)
	}
}

// fork makes copies of an instance. Who has a key asks again until there is an answer, and
// changes the original in between: the copies are of one moment all the same.
func (c *keeper) fork(ctx context.Context) {
	id := c.plain()
	if id == "" {
		return
	}
	box := c.boxes[id]
	name := c.name("fork")
	body := map[string]any{"count": copies, "labels": map[string]string{forkLabel: name}}
	e := event{Operation: opFork, Key: c.key(), Instance: id, Kept: name}
	states := []string{box.state}
	var done event
	for range retries {
		done = c.one(e, http.MethodPost, "/api/v1/instances/"+id+"/fork", body)
		again := done.Error != "" || done.Status >= 500 || done.Status == http.StatusConflict
		if !again || e.Key == "" || ctx.Err() != nil {
			break
		}
		pause(ctx, betweenTries)
		if c.write(ctx, id); box.state == "" {
			break // whatever the copies would hold nobody knows
		}
		states = append(states, box.state)
	}
	if !done.acknowledged() {
		c.left(name)
		return
	}
	for _, one := range done.List {
		c.seen.add(c.tenant, c.door, one)
		c.held = append(c.held, one)
		c.boxes[one] = &keptBox{}
	}
	for _, one := range done.List {
		c.tells(ctx, one, name, states...)
	}
	for _, one := range done.List {
		c.end(ctx, one)
	}
}

// left looks what a fork without copies has left, and ends it.
func (c *keeper) left(name string) {
	ctx := context.Background() // also when the others are about to stop
	e := event{Operation: opLeft, Kept: name}
	e = c.again(ctx, e, true, func(e event) event {
		return c.one(e, http.MethodGet, "/api/v1/instances?label="+url.QueryEscape(forkLabel+"="+name), nil)
	})
	for _, id := range e.List {
		c.seen.add(c.tenant, c.door, id)
		c.end(ctx, id)
	}
}

// drop deletes a snapshot.
func (c *keeper) drop(ctx context.Context) {
	at := c.random.IntN(len(c.snapshots))
	of := c.snapshots[at]
	c.snapshots = slices.Delete(c.snapshots, at, at+1)
	c.asks(ctx, event{Operation: opDrop, Kept: of.id}, http.MethodDelete, "/api/v1/snapshots/"+of.id, nil, true)
}

// allot makes a volume, by one of few names: one that is made again holds nothing.
func (c *keeper) allot(ctx context.Context) {
	name := fmt.Sprintf("v-%d-%d", c.number, c.random.IntN(2))
	e := event{Operation: opAllot, Key: c.key(), Kept: name}
	e = c.asks(ctx, e, http.MethodPost, "/api/v1/volumes", map[string]any{"name": name, "size_bytes": volumeBytes}, e.Key != "")
	if !e.acknowledged() {
		c.asks(ctx, event{Operation: opFree, Kept: name}, http.MethodDelete, "/api/v1/volumes/"+name, nil, true)
		return
	}
	c.volumes = append(c.volumes, keptVolume{name: name})
	c.look(ctx, &c.volumes[len(c.volumes)-1])
}

func (c *keeper) owner(v *keptVolume) string { return "/api/v1/volumes/" + v.name }

// look reads the file of a volume, which holds what it is known to hold.
func (c *keeper) look(ctx context.Context, v *keptVolume) {
	e := event{Operation: opGet, Kept: v.name, Token: v.state}
	if !v.unsure {
		c.get(ctx, e, c.owner(v), inVolume)
	}
}

// fill reads a volume, and puts something else into it.
func (c *keeper) fill(ctx context.Context) {
	if len(c.volumes) == 0 {
		return
	}
	v := &c.volumes[0]
	c.look(ctx, v)
	token := c.name("state")
	done := c.put(ctx, event{Operation: opPut, Kept: v.name, Token: token}, c.owner(v), inVolume)
	v.state, v.unsure = token, !done.acknowledged()
}

// attach makes an instance with a volume. Code finds there what was put into it, and what
// that writes is in the volume afterwards; as long as the instance is there the volume stays.
func (c *keeper) attach(ctx context.Context) {
	if len(c.volumes) == 0 {
		return
	}
	v := &c.volumes[0]
	mounts := []map[string]any{{"name": v.name, "path": mountPath}}
	id := c.make(ctx, event{Key: c.name("key")}, map[string]any{"volumes": mounts}, keptBox{volume: v.name})
	if id == "" {
		return
	}
	inside, path := "/api/v1/instances/"+id, mountPath+inVolume
	if !v.unsure && v.state != "" {
		c.get(ctx, event{Operation: opGet, Kept: v.name, Token: v.state, Path: path}, inside, path)
	}
	token := c.name("state")
	done := c.put(ctx, event{Operation: opPut, Kept: v.name, Token: token, Path: path}, inside, path)
	v.state, v.unsure = token, !done.acknowledged()
	c.look(ctx, v)
	c.one(event{Operation: opFree, Kept: v.name, Instance: id}, http.MethodDelete, "/api/v1/volumes/"+v.name, nil)
	c.end(ctx, id)
}

// free deletes a volume.
func (c *keeper) free(ctx context.Context) {
	name := c.volumes[0].name
	c.volumes = c.volumes[1:]
	c.asks(ctx, event{Operation: opFree, Kept: name}, http.MethodDelete, "/api/v1/volumes/"+name, nil, true)
}

// ofTemplate makes an instance of a template that is built for somebody, or was.
func (c *keeper) ofTemplate(ctx context.Context) {
	of := keeping[c.random.IntN(len(keeping))]
	name := templateNames(of)[c.random.IntN(templatesOf)]
	e := event{Key: c.name("key"), Kept: name}
	if id := c.make(ctx, e, map[string]any{"template": name}, keptBox{}); id != "" {
		c.end(ctx, id)
	}
}

// lists looks at what there is of its tenant.
func (c *keeper) lists() {
	ctx := context.Background()
	if len(c.held) > 0 {
		id := c.held[c.random.IntN(len(c.held))]
		c.one(event{Operation: opLook, Instance: id}, http.MethodGet, "/api/v1/instances/"+id, nil)
	}
	c.asks(ctx, event{Operation: opSnapshots}, http.MethodGet, "/api/v1/snapshots?limit=1000", nil, false)
	c.asks(ctx, event{Operation: opVolumes}, http.MethodGet, "/api/v1/volumes", nil, false)
}

// stealKept reaches for what another tenant keeps.
func (c *keeper) stealKept() {
	ctx := context.Background()
	var others []string
	for _, e := range c.world.history.all() {
		if e.Tenant != c.tenant && e.acknowledged() {
			switch e.Operation {
			case opSnapshot:
				others = append(others, "/api/v1/snapshots/"+e.Kept)
			case opAllot:
				others = append(others, "/api/v1/volumes/"+e.Kept)
			}
		}
	}
	if len(others) == 0 {
		return
	}
	path := others[len(others)-1-c.random.IntN(min(len(others), 10))]
	method := http.MethodGet
	if c.random.IntN(2) == 0 {
		method = http.MethodDelete
	}
	c.asks(ctx, event{Operation: opSteal, Instance: path}, method, path, nil, false)
	if id, isSnapshot := strings.CutPrefix(path, "/api/v1/snapshots/"); isSnapshot {
		c.one(event{Operation: opSteal, Instance: path}, http.MethodPost, "/api/v1/instances", map[string]any{"snapshot": id})
	}
}

// has is how much it has to end.
func (c *keeper) has() int { return len(c.held) + len(c.snapshots) + len(c.volumes) }

// destroy ends something.
func (c *keeper) destroy(ctx context.Context) {
	switch {
	case len(c.held) > 0:
		c.end(ctx, c.held[c.random.IntN(len(c.held))])
	case len(c.snapshots) > 0:
		c.drop(ctx)
	case len(c.volumes) > 0:
		c.free(ctx)
	}
}

// endRest ends all that its tenant has, whoever was told of it.
func (c *keeper) endRest(ctx context.Context) {
	for _, id := range c.listed().List {
		c.end(ctx, id)
	}
	for _, id := range c.asks(ctx, event{Operation: opSnapshots}, http.MethodGet, "/api/v1/snapshots?limit=1000", nil, true).List {
		c.asks(ctx, event{Operation: opDrop, Kept: id}, http.MethodDelete, "/api/v1/snapshots/"+id, nil, true)
	}
	for _, name := range c.asks(ctx, event{Operation: opVolumes}, http.MethodGet, "/api/v1/volumes", nil, true).List {
		c.asks(ctx, event{Operation: opFree, Kept: name}, http.MethodDelete, "/api/v1/volumes/"+name, nil, true)
	}
}

// adminList asks as an administrator for a list.
func (w *world) adminList(path string, into any) bool {
	a := w.ask(http.MethodGet, path, admin, nil, "")
	return a.Err == nil && a.Status == http.StatusOK && json.Unmarshal(a.Body, into) == nil
}
