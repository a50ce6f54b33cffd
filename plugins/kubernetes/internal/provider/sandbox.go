package provider

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	corev1 "k8s.io/api/core/v1"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestlink"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestpackages"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/netpolicy"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// sandbox is a pod with the way to its guest.
type sandbox struct {
	pods.Ref
	way         way
	fingerprint guestlink.Fingerprint
	guest       *guestclient.Client
	from        *maker

	// exited is closed when the pod has ended, or is about to; ending is why.
	exited chan struct{}
	once   sync.Once
	ending *pods.Ending
}

// maker makes sandboxes.
type maker struct {
	settings   settings
	store      *pods.Store
	way        way
	ahead      *ahead // nil where this process keeps pods ready itself
	keys       keyring
	codePolicy []byte
	packages   bool
	logger     hclog.Logger
	policy     *netpolicy.Keeper // nil where pods have no network
	dial       func(ctx context.Context, pod *corev1.Pod) (net.Conn, error)

	mu sync.Mutex
	// known are the sandboxes that there are, by the UIDs of their pods; making are the names
	// of those that are being made.
	known  map[string]*sandbox
	making map[string]bool
	// interpreters are the image's, by language, once a guest has looked.
	interpreters map[sdk.Language]string
	npm          string

	// unenforced says that a policy was seen to be of no effect, and that this is accepted.
	unenforced atomic.Bool
}

// startTime is how long the guest of a pod may take once its container runs, and readLog is
// when its log is read again: soon at first, and at last every mostReadLog.
const (
	startTime   = 30 * time.Second
	readLog     = 50 * time.Millisecond
	mostReadLog = time.Second
)

// make makes a pod and returns when its interpreter is ready.
func (m *maker) make(ctx context.Context, template string) (*sandbox, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, m.settings.CreateTimeout, errSlow)
	defer cancel()
	for tries := 1; ; tries++ {
		s, err := m.makeOne(ctx, template)
		// The controller may take a pod away that it has just given: by itself, for a pool that
		// has become smaller.
		if m.ahead == nil || tries == mostTries || !errors.Is(err, errDeletedEarly) {
			return s, err
		}
	}
}

// mostTries is how many pods are asked for that are deleted before they are ready.
const mostTries = 3

func (m *maker) makeOne(ctx context.Context, template string) (*sandbox, error) {
	name := newName()
	defer m.begin(name)()
	made, err := m.way.Create(ctx, name, template)
	if err != nil {
		if !refused(err) { // its answer may be lost, and not its effect
			m.abandon(ctx, pods.Ref{Name: name})
		}
		return nil, explainCreate(ctx, err)
	}
	ref := pods.Ref{Name: name, Pod: made.Name, UID: string(made.UID)}
	s, err := m.ready(ctx, ref, template)
	if err != nil {
		m.abandon(ctx, ref)
		return nil, err
	}
	return s, nil
}

// ready waits until a pod runs and its guest is ready for a template.
func (m *maker) ready(ctx context.Context, ref pods.Ref, template string) (*sandbox, error) {
	if m.ahead == nil {
		s := m.track(ref)
		if err := m.start(ctx, s, template); err != nil {
			m.forget(s)
			return nil, err
		}
		return s, nil
	}
	if err := m.awaitRunning(ctx, ref); err != nil {
		return nil, err
	}
	s, err := m.ahead.take(ctx, ref)
	if err != nil {
		return nil, err
	}
	if language := languageOf(template); m.programs().Interpreters[language] == "" {
		m.forget(s)
		return nil, sdk.Errorf(sdk.CodeCreateFailed, "there is no interpreter for %q in the image of the sandbox: install it there", language)
	}
	return s, nil
}

var errSlow = errors.New("the pod did not run within create_timeout")

func (m *maker) awaitRunning(ctx context.Context, ref pods.Ref) error {
	pod, err := m.store.Await(ctx, ref.Pod, ref.UID, pods.Running)
	if err != nil {
		err = explainStart(ctx, pod, err)
		if told, ok := errors.AsType[*sdk.Error](err); ok && pod != nil && pods.Ended(pod) != nil {
			return sdk.Errorf(told.Code, "%s; it said: %.300s", told.Message, m.lastWords(ctx, ref))
		}
		return err
	}
	return nil
}

// start waits until the pod runs, and readies its guest. Without a template that is for any.
func (m *maker) start(ctx context.Context, s *sandbox, template string) error {
	if err := m.awaitRunning(ctx, s.Ref); err != nil {
		return err
	}
	authority, err := m.keys.own()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if s.fingerprint, err = m.readFingerprint(ctx, s); err != nil {
		return err
	}
	if err := m.connect(s, authority); err != nil {
		return err
	}
	if err := m.prepare(ctx, s, template); err != nil {
		return err
	}
	return m.tryPolicy(ctx, s)
}

// lastWords are what the guest of a pod has said that ended before it took any code, if the
// kubelet still has them.
func (m *maker) lastWords(ctx context.Context, ref pods.Ref) []byte {
	ctx, cancel := context.WithTimeout(ctx, wordsTime)
	defer cancel()
	log, err := m.store.Log(ctx, ref.Pod)
	if err != nil {
		return []byte("nothing that the kubelet has kept")
	}
	return bytes.TrimSpace(log)
}

// wordsTime is how long the kubelet has to tell what a pod has said.
const wordsTime = 5 * time.Second

// readFingerprint reads who the guest is from the pod's log, which is the kubelet's word.
func (m *maker) readFingerprint(ctx context.Context, s *sandbox) (guestlink.Fingerprint, error) {
	for pause := readLog; ; pause = min(2*pause, mostReadLog) {
		log, err := m.store.Log(ctx, s.Pod)
		if err == nil {
			if found, ok := guestlink.ParseFingerprint(log); ok {
				return found, nil
			}
		}
		select {
		case <-time.After(pause):
		case <-s.exited:
			return "", sdk.Errorf(sdk.CodeCreateFailed, "the pod ended before it was ready: %s; it said: %.300s", s.ending, log)
		case <-ctx.Done():
			return "", sdk.Errorf(sdk.CodeCreateFailed, "the guest of the pod did not start: %w; it said: %.300s", errors.Join(context.Cause(ctx), err), log)
		}
	}
}

// connect makes the client of a sandbox, whose connections come when they are needed.
func (m *maker) connect(s *sandbox, authority ed25519.PrivateKey) error {
	dialer := guestlink.Dialer{Authority: authority, Pod: s.UID, Guest: s.fingerprint, Connect: func(ctx context.Context) (net.Conn, error) {
		pod, err := m.store.Await(ctx, s.Pod, s.UID, pods.Running)
		if err != nil {
			return nil, err
		}
		return m.dial(ctx, pod)
	}}
	guest, err := guestclient.Redialing(dialer.Dial)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.guest = guest
	return nil
}

// prepare readies the guest for a template, and learns which interpreters the image has.
func (m *maker) prepare(ctx context.Context, s *sandbox, template string) error {
	told, err := s.guest.Prepare(ctx, m.preparation(template))
	if template == "" && errors.Is(err, &sdk.Error{Code: sdk.CodeInvalidConfig}) {
		// The image does not have what most ask for.
		cold := m.preparation(template)
		cold.Warm = nil
		told, err = s.guest.Prepare(ctx, cold)
	}
	if err != nil {
		return sdk.Errorf(sdk.CodeCreateFailed, "the guest of the pod is not ready: %w", err)
	}
	m.learn(told.GetInterpreters(), told.GetNpm(), true)
	return nil
}

// learn keeps what a guest has found in its image, which is the image of new pods or may be an
// older one.
func (m *maker) learn(interpreters map[string]string, npm string, current bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.interpreters != nil && !current {
		return
	}
	m.interpreters = map[sdk.Language]string{}
	for language, path := range interpreters {
		m.interpreters[sdk.Language(language)] = path
	}
	m.npm = npm
}

// programs are what the image has, or is thought to have as long as no guest has looked.
func (m *maker) programs() guestpackages.Programs {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.interpreters == nil {
		return guestpackages.Programs{Interpreters: map[sdk.Language]string{sdk.Python: "python3", sdk.JavaScript: "node", sdk.Bash: "bash"}, NPM: "npm"}
	}
	return guestpackages.Programs{Interpreters: m.interpreters, NPM: m.npm}
}

// preparation is what the guest of a template's pod is to do before it takes any code.
func (m *maker) preparation(template string) *guestv1.PrepareRequest {
	s := m.settings
	memory := s.MemoryMB << 20
	if s.Kernel == kernelShared {
		memory = math.MaxInt64 // what the guest sees in use there is the node's
	}
	if template == "" {
		template = templatePython // what most ask for
	}
	return &guestv1.PrepareRequest{
		FindInterpreters: true,
		Warm:             []string{string(languageOf(template))},
		MemoryLimit:      memory,
		ProcessLimit:     uint64(s.Processes),
		FileSizeLimit:    uint64(s.WorkspaceMB) << 20,
		CodePolicy:       m.codePolicy,
		Packages:         m.packages,
	}
}

// begin notes that a pod of that name is being made, until ended is called.
func (m *maker) begin(name string) (ended func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.making[name] = true
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.making, name)
	}
}

// looksAfter says whether a pod is one of this process's sandboxes, or is to be.
func (m *maker) looksAfter(name, uid string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.making[name] || m.known[uid] != nil
}

// track has the end of a pod noticed.
func (m *maker) track(ref pods.Ref) *sandbox {
	s := &sandbox{Ref: ref, way: m.way, from: m, exited: make(chan struct{})}
	m.mu.Lock()
	m.known[ref.UID] = s
	m.mu.Unlock()
	if ending := m.store.EndingOf(ref); ending != nil { // it was told before anybody listened
		s.end(ending)
	}
	return s
}

// knows says whether a pod is tracked.
func (m *maker) knows(uid string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known[uid] != nil
}

func (m *maker) forget(s *sandbox) {
	m.mu.Lock()
	if m.known[s.UID] == s {
		delete(m.known, s.UID)
	}
	guest := s.guest
	m.mu.Unlock()
	if guest != nil {
		_ = guest.Close()
	}
}

// changed is told of each change of a pod, and of its end.
func (m *maker) changed(pod *corev1.Pod, ending *pods.Ending) {
	m.mu.Lock()
	s, ahead := m.known[string(pod.UID)], m.ahead
	m.mu.Unlock()
	if s != nil && ending != nil {
		s.end(ending)
	}
	if ahead != nil {
		ahead.changed(pod, ending != nil)
	}
}

// lookAt asks the API server whether a sandbox has ended.
func (m *maker) lookAt(ctx context.Context, s *sandbox) {
	switch pod, err := m.store.Ask(ctx, s.Pod, s.UID); {
	case err != nil: // nobody knows
	case pod == nil:
		s.end(&pods.Ending{Asked: true, Reason: "Deleted"})
	default:
		m.changed(pod, pods.Ended(pod))
	}
}

// end notes the end of a sandbox, and the first reason for it.
func (s *sandbox) end(why *pods.Ending) {
	s.once.Do(func() {
		s.ending = why
		close(s.exited)
	})
}

// hasEnded says whether the pod has ended, or is about to.
func (s *sandbox) hasEnded() bool {
	select {
	case <-s.exited:
		return true
	default:
		return false
	}
}

// cleanUp bounds what is done after a caller has gone.
const cleanUp = 10 * time.Second

// abandon destroys what a failed creation has left, if there is anything.
func (m *maker) abandon(ctx context.Context, ref pods.Ref) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	_ = m.way.Remove(ctx, ref) // what stays has this process for its holder, and is swept later
}

// Exited implements pool.Sandbox.
func (s *sandbox) Exited() <-chan struct{} { return s.exited }

// Destroy implements pool.Sandbox. It returns when the pod is gone.
func (s *sandbox) Destroy(ctx context.Context) error {
	s.end(&pods.Ending{Asked: true, Reason: "Deleted"}) // what still runs is told so
	s.from.forget(s)
	return s.way.Destroy(ctx, s.Ref)
}

// dialPod connects to the guest's port at the pod's own address.
func dialPod(port int64) func(context.Context, *corev1.Pod) (net.Conn, error) {
	var dialer net.Dialer
	return func(ctx context.Context, pod *corev1.Pod) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", net.JoinHostPort(pod.Status.PodIP, strconv.FormatInt(port, 10)))
	}
}

// newName makes the name of a pod: all of one length, so that none is a prefix of another.
func newName() string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
	name := []byte("sandbox-")
	var b [1]byte
	for len(name) < len("sandbox-")+20 {
		_, _ = rand.Read(b[:])                   // never fails
		if n := int(b[0]); n < 7*len(alphabet) { // no modulo bias
			name = append(name, alphabet[n%len(alphabet)])
		}
	}
	return string(name)
}

func (s *sandbox) String() string { return fmt.Sprintf("pod %s", s.Pod) }
