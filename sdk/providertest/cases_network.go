package providertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// networkCases are run against a server of the suite, on this machine: a provider whose
// instances cannot be led there is not checked by them.
func networkCases() []Case {
	const group = "network"
	return needing([]Case{
		{Group: group, Name: "an instance without a policy reaches nothing", run: networkNone},
		{Group: group, Name: "an instance reaches what its policy names", run: networkReaches},
		{Group: group, Name: "an instance reaches nothing that its policy does not name", run: networkRefuses},
		{Group: group, Name: "a port that the policy does not name is not reached", run: networkPort},
		{Group: group, Name: "a method that the policy does not name is refused", run: networkMethod},
		{Group: group, Name: "a path that the policy does not name is refused", run: networkPath},
		{Group: group, Name: "a host on this machine needs a policy that says so", run: networkPrivate},
		{Group: group, Name: "another policy takes the place of the first", run: networkChanges},
		{Group: group, Name: "an instance that had no network gets one", run: networkBegins},
		{Group: group, Name: "a policy is that of one instance", run: networkIsOfOneInstance},
		{Group: group, Name: "what a new policy does not allow is cut off when it is in force", run: networkCuts},
		{Group: group, Name: "what instances do is told", run: networkTells},
		{Group: group, Name: "a policy that is none is refused, and the old one stays", run: networkInvalid},
		{Group: group, Name: "an unknown instance is not found", run: networkUnknownInstance},
	}, sdk.CapabilityNetwork)
}

// destination is a server of the suite.
type destination struct {
	server *httptest.Server
	host   string
	port   int

	mu   sync.Mutex
	seen []string
	held chan struct{} // closed when a request to /hold has ended
}

// destination starts one, which ends with the case.
func (c *scene) destination() *destination {
	d := &destination{held: make(chan struct{})}
	d.server = httptest.NewServer(d)
	c.later(d.server.Close)
	host, port, err := net.SplitHostPort(d.server.Listener.Addr().String())
	c.must(err, "start a server")
	d.host = host
	d.port, err = strconv.Atoi(port)
	c.must(err, "start a server")
	return d
}

// ServeHTTP implements http.Handler.
func (d *destination) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	d.seen = append(d.seen, r.Method+" "+r.URL.Path)
	d.mu.Unlock()
	_, _ = io.WriteString(w, "reached "+r.URL.Path+"\n")
	if r.URL.Path == "/hold" {
		defer close(d.held)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

func (d *destination) requests() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.seen)
}

// policy allows the server.
func (d *destination) policy() sdk.NetworkPolicy {
	return sdk.NetworkPolicy{Rules: []sdk.NetworkRule{{Host: d.host, Ports: []int{d.port}, Private: true}}}
}

func (d *destination) address(path string) string {
	return "http://" + net.JoinHostPort(d.host, strconv.Itoa(d.port)) + path
}

// governed makes an instance with a policy.
func (c *scene) governed(policy sdk.NetworkPolicy) instance {
	c.someLanguage()
	req := c.createRequest(c.language)
	req.Network = &policy
	return c.create(req)
}

// fetch has a program ask for an address through whatever its environment names, and returns
// what it got: the status and the text, or that it failed.
func (in instance) fetch(method, address string) string {
	got := in.execute(in.request(in.fetching(method, address)))
	got.succeeded()
	return got.stdout
}

func (in instance) fetching(method, address string) string {
	if in.language != sdk.Python {
		in.skip("the suite asks for addresses in Python")
	}
	return fmt.Sprintf(`
import os, urllib.request, urllib.error
os.environ.pop("no_proxy", None); os.environ.pop("NO_PROXY", None)
try:
    r = urllib.request.urlopen(urllib.request.Request(%q, method=%q), timeout=30)
    print(r.status, r.read().decode())
except urllib.error.HTTPError as e:
    print(e.code, e.read().decode())
except Exception as e:
    print("failed", type(e).__name__)
`, address, method)
}

func (in instance) reaches(d *destination, path string) {
	got := in.fetch(http.MethodGet, d.address(path))
	in.check(strings.HasPrefix(got, "200 reached "), "asked for %s the program got %s; the policy allows it", path, shown(got))
}

func (in instance) misses(d *destination, method, address string) {
	before := d.requests()
	got := in.fetch(method, address)
	in.check(!strings.Contains(got, "reached"), "asked for %s the program got %s; the policy does not allow it", address, shown(got))
	in.check(d.requests() == before, "a request arrived that the policy does not allow")
}

// "A request without Network is one for nothing." (CreateRequest.Network)
func networkNone(c *scene) {
	d := c.destination()
	c.instance().misses(d, http.MethodGet, d.address("/"))
}

// "NetworkPolicy says what an instance may reach." (NetworkPolicy)
func networkReaches(c *scene) {
	d := c.destination()
	c.governed(d.policy()).reaches(d, "/a/b")
}

// The same: and nothing else.
func networkRefuses(c *scene) {
	d := c.destination()
	in := c.governed(sdk.NetworkPolicy{Rules: []sdk.NetworkRule{{Host: "elsewhere.example.com", Ports: []int{d.port}, Private: true}}})
	in.misses(d, http.MethodGet, d.address("/"))
}

// "Ports of TCP." (NetworkRule)
func networkPort(c *scene) {
	d, other := c.destination(), c.destination()
	in := c.governed(d.policy())
	in.reaches(d, "/")
	in.misses(other, http.MethodGet, other.address("/"))
}

// "Methods of HTTP in capitals." (NetworkRule)
func networkMethod(c *scene) {
	d := c.destination()
	policy := d.policy()
	policy.Rules[0].Methods = []string{http.MethodGet}
	in := c.governed(policy)
	in.reaches(d, "/")
	in.misses(d, http.MethodDelete, d.address("/"))
}

// ""/a" is that path, and "/a/*" all below it." (NetworkRule)
func networkPath(c *scene) {
	d := c.destination()
	policy := d.policy()
	policy.Rules[0].Paths = []string{"/one", "/all/*"}
	in := c.governed(policy)
	in.reaches(d, "/one")
	in.reaches(d, "/all/of/it")
	for _, path := range []string{"/", "/one/more", "/all", "/all/../x", "/all/%2e%2e/x"} {
		in.misses(d, http.MethodGet, d.address(path))
	}
}

// "Private allows that the host is on a private network, or on the provider's machine."
// (NetworkRule)
func networkPrivate(c *scene) {
	d := c.destination()
	policy := d.policy()
	policy.Rules[0].Private = false
	c.governed(policy).misses(d, http.MethodGet, d.address("/"))
}

func (in instance) setNetwork(policy sdk.NetworkPolicy) error {
	return in.call("SetNetwork", func(ctx context.Context) error { return in.SetNetwork(ctx, in.ID, policy) })
}

// "SetNetwork puts another policy in the place of the one that an instance has."
// (NetworkGovernor)
func networkChanges(c *scene) {
	d, other := c.destination(), c.destination()
	in := c.governed(d.policy())
	in.reaches(d, "/")
	for range 2 { // "It is idempotent."
		c.must(in.setNetwork(other.policy()), "set another policy")
		in.misses(d, http.MethodGet, d.address("/"))
		in.reaches(other, "/")
	}
	c.must(in.setNetwork(sdk.NetworkPolicy{}), "set a policy without rules")
	in.misses(other, http.MethodGet, other.address("/"))
}

// The same, where there was none.
func networkBegins(c *scene) {
	d := c.destination()
	in := c.instance()
	c.must(in.setNetwork(d.policy()), "set a policy")
	in.reaches(d, "/")
}

// The same: of that instance.
func networkIsOfOneInstance(c *scene) {
	d := c.destination()
	in, other := c.governed(d.policy()), c.instance()
	in.reaches(d, "/")
	other.misses(d, http.MethodGet, d.address("/"))
	c.must(other.setNetwork(sdk.NetworkPolicy{}), "set a policy without rules")
	in.reaches(d, "/")
}

// "When it returns, what the new one does not allow is cut off." (NetworkGovernor)
func networkCuts(c *scene) {
	d := c.destination()
	in := c.governed(d.policy())
	e := in.begin(in.ctx, in.request(in.fetching(http.MethodGet, d.address("/hold"))))
	c.eventually("no request arrived", func(context.Context) error {
		if d.requests() == 0 {
			return errNotYet
		}
		return nil
	})
	c.must(in.setNetwork(sdk.NetworkPolicy{}), "set a policy without rules")
	c.eventually("the connection did not end", func(context.Context) error {
		select {
		case <-d.held:
			return nil
		default:
			return errNotYet
		}
	})
	e.await(codeTimeout, "its connection had ended")
}

// "FollowNetwork hands over what the instances did with their networks." (NetworkGovernor)
func networkTells(c *scene) {
	d := c.destination()
	in := c.governed(d.policy())
	in.reaches(d, "/told")
	in.misses(d, http.MethodGet, "http://elsewhere.example.com/")
	verdicts := map[sdk.NetworkVerdict]bool{}
	err := in.call("FollowNetwork", func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		err := in.FollowNetwork(ctx, func(r sdk.NetworkReport) error {
			for _, told := range r.Connections {
				if told.InstanceID == in.ID {
					verdicts[told.Verdict] = true
				}
			}
			if verdicts[sdk.NetworkAllowed] && verdicts[sdk.NetworkRefused] {
				cancel()
			}
			return nil
		})
		if errors.Is(err, context.Canceled) && verdicts[sdk.NetworkAllowed] && verdicts[sdk.NetworkRefused] {
			return nil
		}
		return fmt.Errorf("it ended with %w; told were %v", err, verdicts)
	})
	c.must(err, "follow what instances do")
}

// "A policy that needs more than can be done for this instance is refused with
// CodeInvalidRequest and the field "network", and the old one stays." (NetworkGovernor)
func networkInvalid(c *scene) {
	d := c.destination()
	in := c.governed(d.policy())
	for _, host := range []string{"", "http://example.com", "a.*.com", "EXAMPLE.com", "example.com:80"} {
		policy := sdk.NetworkPolicy{Rules: []sdk.NetworkRule{{Host: host}}}
		c.refusedField(in.setNetwork(policy), "SetNetwork with the host "+shown(host), sdk.CodeInvalidRequest, "network")
		req := c.createRequest(c.language)
		req.Network = &policy
		_, err := c.Create(c.ctx, req)
		c.refusedField(err, "Create with the host "+shown(host), sdk.CodeInvalidRequest, "network")
	}
	in.reaches(d, "/")
}

// "Return CodeNotFound for an unknown instance." (NetworkGovernor)
func networkUnknownInstance(c *scene) {
	c.refused(c.SetNetwork(c.ctx, "unknown"+randomWord(), sdk.NetworkPolicy{}), "SetNetwork of an unknown instance", sdk.CodeNotFound)
}
