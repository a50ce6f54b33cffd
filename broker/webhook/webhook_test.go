package webhook_test

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/webhook"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// The example of the Standard Webhooks specification.
func TestTheSignatureIsThatOfTheSpecification(t *testing.T) {
	secret, err := webhook.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	assert.NilError(t, err)
	signature := webhook.Sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	assert.Equal(t, signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
}

func TestSecretsThatAreNone(t *testing.T) {
	for _, text := range []string{"", "whsec_", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_!", "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65))} {
		_, err := webhook.ParseSecret(text)
		assert.ErrorContains(t, err, "whsec_", "%q", text)
	}
}

const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// receiver is where reports are posted to. It takes them only if they are signed.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	answer []int // the next answers; 204 after them
	got    []string
	ids    map[string]bool
}

func receive(t *testing.T, answer ...int) *receiver {
	t.Helper()
	r := &receiver{answer: answer, ids: map[string]bool{}}
	key, err := webhook.ParseSecret(secret)
	assert.NilError(t, err)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		assert.Check(t, err)
		id := req.Header.Get("webhook-id")
		at, err := strconv.ParseInt(req.Header.Get("webhook-timestamp"), 10, 64)
		assert.Check(t, err)
		assert.Check(t, time.Since(time.Unix(at, 0)).Abs() < 5*time.Minute)
		assert.Check(t, is.Equal(req.Header.Get("webhook-signature"), webhook.Sign(key, id, time.Unix(at, 0), body)))
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got, r.ids[id] = append(r.got, string(body)), true
		status := http.StatusNoContent
		if len(r.answer) > 0 {
			status, r.answer = r.answer[0], r.answer[1:]
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) count() (posts, ids int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got), len(r.ids)
}

// fixture is a deliverer on a state file and an audit log.
type fixture struct {
	*webhook.Deliverer
	t     *testing.T
	opts  webhook.Options
	store *store.Store
	audit *audit.Log

	mu    sync.Mutex
	ended []string
	rules webhook.Rules
}

func start(t *testing.T, rules webhook.Rules) *fixture {
	t.Helper()
	dir := t.TempDir()
	f := &fixture{t: t, rules: rules}
	f.rules.Secret = secret
	var err error
	f.store, err = store.Open(filepath.Join(dir, "state.db"), store.Options{})
	assert.NilError(t, err)
	f.audit, err = audit.Open(audit.Options{Dir: filepath.Join(dir, "audit"), Logger: hclog.NewNullLogger()})
	assert.NilError(t, err)
	f.opts = webhook.Options{
		Store: f.store, Log: f.audit, Logger: hclog.NewNullLogger(), Delays: []time.Duration{0, time.Millisecond, time.Millisecond},
		Rules: func(tenant string) (webhook.Rules, bool) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.rules, tenant == "acme"
		},
		Ended: func(tenant, execution, status string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.ended = append(f.ended, tenant+" "+execution+" "+status)
		},
	}
	f.open()
	t.Cleanup(func() {
		f.Close()
		assert.Check(t, f.audit.Close(context.Background()))
		assert.Check(t, f.store.Close())
	})
	return f
}

func (f *fixture) open() {
	f.t.Helper()
	var err error
	f.Deliverer, err = webhook.Open(f.opts)
	assert.NilError(f.t, err)
}

func (f *fixture) add(url string) {
	f.t.Helper()
	id := f.NewID("acme")
	assert.NilError(f.t, f.store.Update(f.t.Context(), func(tx store.Tx) error {
		return f.Add(tx, id, "acme", "x", url, []byte(`{"a":1}`))
	}))
	f.Added(id, "acme")
}

func (f *fixture) wantsEnd(want string) {
	f.t.Helper()
	poll.WaitOn(f.t, func(poll.LogT) poll.Result {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.ended) == 0 {
			return poll.Continue("no delivery has ended")
		}
		return poll.Compare(is.DeepEqual(f.ended, []string{want}))
	}, poll.WithTimeout(time.Minute), poll.WithDelay(5*time.Millisecond))
}

func TestAReportIsPostedUntilItIsTaken(t *testing.T) {
	for name, test := range map[string]struct {
		answers []int
		end     string
		posts   int
	}{
		"at once":                       {nil, "acme x delivered", 1},
		"after failures":                {[]int{500, 429}, "acme x delivered", 3},
		"not for ever":                  {[]int{500, 500, 500, 500}, "acme x failed", 3},
		"not where nobody wants it":     {[]int{410}, "acme x failed", 1},
		"a redirection is not followed": {[]int{307, 302, 301}, "acme x failed", 3},
	} {
		t.Run(name, func(t *testing.T) {
			r := receive(t, test.answers...)
			f := start(t, webhook.Rules{AllowPrivate: []string{strings.TrimPrefix(r.URL, "http://")}})
			f.Run()
			f.add(r.URL + "/hook?key=value")
			f.wantsEnd(test.end)
			posts, ids := r.count()
			assert.Equal(t, posts, test.posts)
			assert.Equal(t, ids, 1) // by which the receiver tells repetitions
			for _, body := range r.got {
				assert.Equal(t, body, `{"a":1}`)
			}
		})
	}
}

// watched is a state file that says what was done with it.
type watched struct {
	*store.Store
	updated, refused chan struct{}
}

func (w *watched) Update(ctx context.Context, change func(tx store.Tx) error) error {
	err := w.Store.Update(ctx, change)
	w.updated <- struct{}{}
	return err
}

func (w *watched) View(read func(tx store.Tx) error) error {
	if w.refused == nil {
		return w.Store.View(read)
	}
	w.refused <- struct{}{}
	return errors.New("the disk does not answer")
}

func (f *fixture) waiting() (count int) {
	f.t.Helper()
	assert.NilError(f.t, f.store.View(func(tx store.Tx) error {
		return store.Each(tx, store.Webhooks, func(string, struct{}, error) error {
			count++
			return nil
		})
	}))
	return count
}

func TestAReportOfARemovedTenantIsNotPutBack(t *testing.T) {
	var f *fixture
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		f.Forget(func(string) bool { return false })
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(s.Close)
	f = start(t, webhook.Rules{AllowPrivate: []string{strings.TrimPrefix(s.URL, "http://")}})
	f.Close()
	state := &watched{Store: f.store, updated: make(chan struct{}, 8)}
	f.opts.Store = state
	f.open()
	f.Run()
	f.add(s.URL)
	<-state.updated // it is forgotten,
	<-state.updated // and the next attempt is noted
	assert.Equal(t, f.waiting(), 0)
}

func TestAReportThatCannotBeReadIsKept(t *testing.T) {
	r := receive(t)
	f := start(t, webhook.Rules{AllowPrivate: []string{strings.TrimPrefix(r.URL, "http://")}})
	f.Close()
	state := &watched{Store: f.store, updated: make(chan struct{}, 8)}
	f.opts.Store = state
	f.open()
	state.refused = make(chan struct{})
	f.Run()
	f.add(r.URL)
	<-state.refused
	f.Close()
	assert.Equal(t, f.waiting(), 1)
	f.opts.Store = f.store
	f.open()
	f.Run()
	f.wantsEnd("acme x delivered")
}

func TestTheNextProcessGoesOnDelivering(t *testing.T) {
	r := receive(t)
	f := start(t, webhook.Rules{AllowPrivate: []string{strings.TrimPrefix(r.URL, "http://")}})
	f.add(r.URL) // and nothing runs that would deliver it
	f.Close()
	f.open()
	f.Run()
	f.wantsEnd("acme x delivered")
	f.Close()
	f.open()
	assert.Assert(t, f.NewID("acme") != "")
	posts, _ := r.count()
	assert.Equal(t, posts, 1)
}

func TestWhatIsNoLongerAllowedIsNotPosted(t *testing.T) {
	r := receive(t)
	f := start(t, webhook.Rules{AllowPrivate: []string{"other.example"}})
	f.Run()
	f.add(r.URL)
	f.wantsEnd("acme x failed")
	posts, _ := r.count()
	assert.Equal(t, posts, 0)
}

func TestANameThatLeadsIntoTheOwnNetworkIsNotFollowed(t *testing.T) {
	r := receive(t)
	_, port, _ := strings.Cut(strings.TrimPrefix(r.URL, "http://"), ":")
	f := start(t, webhook.Rules{Allow: []string{"localhost:" + port}})
	f.Run()
	f.add("https://localhost:" + port)
	f.wantsEnd("acme x failed")
	posts, _ := r.count()
	assert.Equal(t, posts, 0)
}

func TestWhereReportsMayGo(t *testing.T) {
	f := start(t, webhook.Rules{Allow: []string{"a.example", "b.example:8443", "*.c.example"}, AllowPrivate: []string{"10.0.0.1:80", "[::1]:80"}})
	for url, allowed := range map[string]bool{
		"https://a.example/x?y=z":      true,
		"https://A.EXAMPLE/":           true,
		"https://a.example:443/":       true,
		"https://a.example:8443/":      false,
		"https://b.example:8443/":      true,
		"https://b.example/":           false,
		"https://x.c.example/":         true,
		"https://x.y.c.example/":       true,
		"https://c.example/":           false,
		"https://xc.example/":          false,
		"https://a.example.evil.test/": false,
		"http://a.example/":            false,
		"http://a.example:443/":        false,
		"http://10.0.0.1/":             true,
		"http://10.0.0.1:8080/":        false,
		"http://[::1]/":                true,
		"https://user@a.example/":      false,
		"https://a.example@evil.test/": false,
		"https://evil.test#a.example":  false,
		"https://a.example/#x":         false,
		"ftp://a.example/":             false,
		"//a.example/":                 false,
		"https:a.example":              false,
		"https://a.example\\@b/":       false,
		"":                             false,
	} {
		err := f.Check("acme", url)
		assert.Check(t, (err == nil) == allowed, "%s: %v", url, err)
		if err != nil {
			assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeNotAllowed))
		}
	}
	assert.Equal(t, sdk.CodeOf(f.Check("rival", "https://a.example/")), sdk.CodeNotAllowed)
}
