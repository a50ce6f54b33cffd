package frontdoor

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Nonsense is what a hostile client sends to a door: to each route that is registered, with
// bodies that are well-formed and wrong in one field, with what belongs to another tenant,
// and with bytes that are nothing at all.
type Nonsense struct {
	// Door by its name; the broker has it where it is unless somebody says otherwise.
	Door string
	// Credentials of the client, which is the tenant acme.
	Credentials http.Header
	// Parameters are what is put in the place of those in paths, by name. Others get what
	// nothing is called.
	Parameters map[string][]string
	// Harmful are operations, as METHOD PATH, that would end what the others need: their
	// parameters are only those that nothing is called, and the last ones of Parameters.
	Harmful []string
	// Endless are operations whose answers do not end; no more than their head is read.
	Endless []string
	// Bodies are right ones of operations, as METHOD PATH. Their fields are made wrong one
	// by one.
	Bodies map[string]string
	// Queries are right values of parameters there, by name.
	Queries map[string]string
	// Enveloped are operations whose bodies are messages of a stream of the Connect protocol.
	// Their refusals come after the head.
	Enveloped []string
	// Undo are operations, as METHOD PATH or METHOD PATH BODY with the ID in a %s, that end
	// what others have made after all, by theirs.
	Undo map[string]string
	// Documented says which statuses of the server's own fault the door may answer, beside
	// 501 and 503. It may be nil.
	Documented func(op string, status int) bool
	// Refusal says what is wrong with the form of a refusal.
	Refusal func(op string, status int, body []byte) error
	// Canaries are of another tenant and in no answer.
	Canaries []string
}

// How much a broker may grow by it.
const (
	moreMemory     = 64 << 20
	moreGoroutines = 20
)

// absent are names and IDs that nothing has.
var absent = []string{"x", "0", "-1", "65536", "99999999999999999999", "aaaaaaaaaaaaaaaaaaaa", "..", "%2e%2e", "%00", "%ff", "a%2Fb", "%F0%9F%92%A9", strings.Repeat("a", 2000)}

// wrong are values of JSON that few fields have a use for.
var wrong = []string{
	`null`, `true`, `false`, `0`, `-1`, `1.5`, `1e999`, `-1e999`, `1e-999`, `99999999999999999999999`, `9223372036854775807`,
	`""`, `"x"`, `"\u0000"`, `"\ud800"`, `"\udc00\ud800"`, `"../../../etc/passwd"`, `"` + strings.Repeat("a", 100_000) + `"`,
	`[]`, `[[]]`, `[null]`, `[1]`, `[""]`, `["x","\u0000"]`, `{}`, `{"":null}`, `{"x":1}`, `{"__proto__":{}}`, `{"\ud800":{}}`,
	strings.Repeat("[", 2000) + strings.Repeat("]", 2000), strings.Repeat(`{"a":`, 2000) + "1" + strings.Repeat("}", 2000),
	strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000),
}

// pieces make bodies that are nothing at all.
var pieces = []string{`{`, `}`, `"command"`, `"image"`, `:`, `"!!!"`, `null`, `[`, `]`, `,`, `"timeout"`, `-1`, `1e999`, `{}`, `"path"`, "\x00", `"\ud800"`, `true`, "\xff\xfe", "--b\r\n"}

// attempt is one request.
type attempt struct{ op, method, target, contentType, body string }

// Send sends at least so many requests, every tenth of them with -short, and says what the door
// does not bear.
func (n Nonsense) Send(t *testing.T, b *harness.Broker, atLeast int) {
	t.Helper()
	attempts := n.attempts(t, atLeast)
	if testing.Short() {
		var some []attempt
		for i := 0; i < len(attempts); i += 10 {
			some = append(some, attempts[i])
		}
		attempts = some
	}
	before, busy := open(t, b), Metric(t, b, goroutines)
	memory := harness.WatchMemory(t, moreMemory, map[string]int{"broker": b.PID})
	connections := &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 4},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	var group errgroup.Group
	group.SetLimit(4)
	for _, a := range attempts {
		group.Go(func() error {
			if t.Failed() {
				return nil // one is enough
			}
			assert.Check(t, n.send(t.Context(), connections, b.URL+"/"+n.Door, a))
			return nil
		})
	}
	assert.NilError(t, group.Wait())
	connections.CloseIdleConnections()
	memory.Check(t, fmt.Sprintf("%d requests of nonsense", len(attempts)))
	assert.Check(t, is.DeepEqual(open(t, b), before), "the instances that are open")
	var more float64
	poll.WaitOn(t, func(poll.LogT) poll.Result { // connections take a moment to end
		if more = Metric(t, b, goroutines) - busy; more > moreGoroutines {
			return poll.Continue("%g goroutines more than before", more)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	t.Logf("%g goroutines more than before", more)
}

// attempts are for each operation of the door: each field of its body with each wrong
// value, and then at random. They are the same each time.
func (n Nonsense) attempts(t *testing.T, atLeast int) (all []attempt) {
	operations := Operations(t, n.Door)
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same each time
	known := map[string]bool{}
	for _, op := range operations {
		name := op.Method + " " + op.Path
		known[name] = true
		body, has := n.Bodies[name]
		for _, wrongBody := range wrongBodies(t, body, has) {
			all = append(all, attempt{name, op.Method, n.target(random, op, len(all)%3 == 0), "application/json", wrongBody})
		}
	}
	for _, name := range slices.Concat(n.Harmful, n.Endless, slices.Collect(maps.Keys(n.Bodies))) {
		assert.Assert(t, known[name], "the door has no route %s", name)
	}
	types := []string{"application/json", "", "text/plain", "multipart/form-data; boundary=b", "multipart/form-data", "a/b; c=\xff"}
	for len(all) < atLeast {
		op := operations[random.IntN(len(operations))]
		name := op.Method + " " + op.Path
		var text strings.Builder
		if body, has := n.Bodies[name]; has && random.IntN(2) == 0 {
			twice := wrongBodies(t, body, true)
			text.WriteString(twice[random.IntN(len(twice))])
		} else {
			for range random.IntN(12) {
				text.WriteString(pieces[random.IntN(len(pieces))])
			}
		}
		all = append(all, attempt{name, op.Method, n.target(random, op, true), types[random.IntN(len(types))], text.String()})
	}
	return all
}

// Operations are those of a door, as the broker registers them.
func Operations(t *testing.T, door string) []rest.Operation {
	t.Helper()
	server, err := api.NewServer(api.Options{Tenants: tenant.NewDirectory(nil), Logger: hclog.NewNullLogger()})
	assert.NilError(t, err)
	defer func() { assert.Check(t, server.Shutdown(context.Background())) }()
	operations := server.Operations(door)
	assert.Assert(t, len(operations) > 0, "there is no door %q", door)
	return operations
}

var parameter = regexp.MustCompile(`\{([a-z]+)\}`)

// target fills in the parameters of a path, with a query that is more or less wrong.
func (n Nonsense) target(random *rand.Rand, op rest.Operation, strange bool) string {
	harmful := slices.Contains(n.Harmful, op.Method+" "+op.Path)
	path := parameter.ReplaceAllStringFunc(op.Path, func(name string) string {
		values := n.Parameters[strings.Trim(name, "{}")]
		switch {
		case len(values) == 0 || strange && random.IntN(4) == 0:
			return absent[random.IntN(len(absent))]
		case harmful:
			return values[len(values)-1]
		case !strange:
			return values[0]
		}
		return values[random.IntN(len(values))]
	})
	path = strings.Replace(path, "*", absent[random.IntN(len(absent))], 1)
	var query []string
	for _, name := range slices.Sorted(maps.Keys(n.Queries)) {
		switch random.IntN(4) {
		case 0:
			query = append(query, name+"="+n.Queries[name])
		case 1:
			query = append(query, name+"="+absent[random.IntN(len(absent))])
		}
	}
	if len(query) == 0 || !op.AnyQuery && !strange {
		return path
	}
	return path + "?" + strings.Join(query, "&")
}

// wrongBodies are a body with each of its fields made wrong in each way, and the wrong
// values themselves.
func wrongBodies(t *testing.T, body string, has bool) []string {
	t.Helper()
	if !has {
		return []string{"", "{}", "[]", "null", "{", strings.Repeat("[", 20_000)}
	}
	var right any
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.UseNumber()
	assert.NilError(t, decoder.Decode(&right))
	all := slices.Clone(wrong)
	var places int
	write(&strings.Builder{}, right, &places, -1, "")
	for place := range places {
		for _, value := range wrong {
			var text strings.Builder
			write(&text, right, new(int), place, value)
			all = append(all, text.String())
		}
	}
	return all
}

// write writes JSON with another value in one place. Places are counted as they come.
func write(to *strings.Builder, value any, place *int, at int, instead string) {
	here := *place
	*place++
	if here == at {
		to.WriteString(instead)
		to = &strings.Builder{} // what would have been here is counted alone
	}
	switch v := value.(type) {
	case map[string]any:
		to.WriteByte('{')
		for n, name := range slices.Sorted(maps.Keys(v)) {
			if n > 0 {
				to.WriteByte(',')
			}
			key, _ := json.Marshal(name)
			to.Write(append(key, ':'))
			write(to, v[name], place, at, instead)
		}
		to.WriteByte('}')
	case []any:
		to.WriteByte('[')
		for n := range v {
			if n > 0 {
				to.WriteByte(',')
			}
			write(to, v[n], place, at, instead)
		}
		to.WriteByte(']')
	default:
		text, _ := json.Marshal(v)
		to.Write(text)
	}
}

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 1 << 20

// noAnswer is how long an answer may take that the door itself gives no time limit.
const noAnswer = 3 * time.Minute

// send sends one and looks at the answer.
func (n Nonsense) send(ctx context.Context, connections *http.Client, base string, a attempt) error {
	if a.contentType == "application/json" && slices.Contains(n.Enveloped, a.op) {
		a.contentType = "application/connect+json"
		a.body = string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(a.body)))) + a.body //nolint:gosec // it is short
	}
	ctx, cancel := context.WithTimeout(ctx, noAnswer)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, a.method, base+a.target, strings.NewReader(a.body))
	if err != nil {
		return nil // it is no URL, and no request could be written for it
	}
	req.Header = n.Credentials.Clone()
	if a.contentType != "" {
		req.Header.Set("Content-Type", a.contentType)
	}
	resp, err := connections.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", a, err)
	}
	defer resp.Body.Close()
	var body []byte
	if resp.StatusCode >= 400 || !slices.Contains(n.Endless, a.op) {
		if body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
	}
	for _, canary := range n.Canaries {
		if bytes.Contains(body, []byte(canary)) || strings.Contains(fmt.Sprint(resp.Header), canary) {
			return fmt.Errorf("%s: what is another tenant's is in the answer: %v %s", a, resp.Header, clipped(body))
		}
	}
	switch status := resp.StatusCode; {
	case status >= 200 && status < 300:
		return n.undo(ctx, connections, base, a, body)
	case status < 400, status >= 500 && !n.documented(a.op, status):
		return fmt.Errorf("%s: %d %s", a, status, clipped(body))
	default:
		if err := n.Refusal(a.op, status, body); err != nil {
			return fmt.Errorf("%s: %d %s: %w", a, status, clipped(body), err)
		}
		return nil
	}
}

func (n Nonsense) documented(op string, status int) bool {
	return status == http.StatusNotImplemented || status == http.StatusServiceUnavailable || n.Documented != nil && n.Documented(op, status)
}

var madeID = regexp.MustCompile(`"[a-z_]*(?:id|Id|ID)":"([^"]+)"`)

// undo ends what a request has made.
func (n Nonsense) undo(ctx context.Context, connections *http.Client, base string, a attempt, answer []byte) error {
	id := madeID.FindSubmatch(answer)
	if n.Undo[a.op] == "" || id == nil {
		return nil
	}
	method, target, _ := strings.Cut(fmt.Sprintf(n.Undo[a.op], id[1]), " ")
	path, body, _ := strings.Cut(target, " ")
	req, err := http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = n.Credentials.Clone()
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := connections.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 && resp.StatusCode != http.StatusNotFound {
		return fmt.Errorf("%s has made %s, and its end is refused: %d", a, id[1], resp.StatusCode)
	}
	return nil
}

// String shows a request.
func (a attempt) String() string {
	return fmt.Sprintf("%s %s %s %q", a.method, clipped([]byte(a.target)), a.contentType, clipped([]byte(a.body)))
}

func clipped(text []byte) []byte { return text[:min(len(text), 300)] }

// open are the instances of both tenants.
func open(t *testing.T, b *harness.Broker) (ids []string) {
	t.Helper()
	connections := &http.Client{Transport: &http.Transport{}}
	defer connections.CloseIdleConnections()
	for _, token := range []string{harness.Token, harness.OtherToken} {
		list, err := client.New(b.URL, token).Over(connections).Instances(t.Context(), nil)
		assert.NilError(t, err)
		for _, one := range list.Instances {
			ids = append(ids, one.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

var metricsAddress = regexp.MustCompile(`metrics: address=(\S+)`)

// goroutines of the broker.
const goroutines = "go_goroutines"

// Metric reads a metric of a broker that On has started, by its name and labels as they are
// written.
func Metric(t *testing.T, b *harness.Broker, name string) (value float64) {
	t.Helper()
	address := metricsAddress.FindStringSubmatch(b.Log())
	assert.Assert(t, address != nil, b.Log())
	connections := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
	defer connections.CloseIdleConnections()
	resp, err := connections.Get("http://" + address[1] + "/metrics")
	assert.NilError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	assert.NilError(t, err)
	_, after, found := strings.Cut(string(text), "\n"+name+" ")
	assert.Assert(t, found, "%s is not in\n%s", name, text)
	_, err = fmt.Sscan(after, &value)
	assert.NilError(t, err)
	return value
}
