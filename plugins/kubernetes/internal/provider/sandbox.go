package provider

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestlink"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestpackages"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// sandbox is a pod with the way to its guest.
type sandbox struct {
	name, uid   string
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
	keys       keyring
	codePolicy []byte
	packages   bool
	dial       func(ctx context.Context, pod *corev1.Pod) (net.Conn, error)

	mu sync.Mutex
	// known are the sandboxes that there are, by the names of their pods.
	known map[string]*sandbox
	// interpreters are the image's, by language, once a guest has looked.
	interpreters map[sdk.Language]string
	npm          string
}

// startTime is how long the guest of a pod may take once its container runs, and readLog how
// often its log is read until then.
const (
	startTime = 30 * time.Second
	readLog   = 50 * time.Millisecond
)

// make makes a pod and returns when its interpreter is ready.
func (m *maker) make(ctx context.Context, template string) (*sandbox, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, m.settings.CreateTimeout, errSlow)
	defer cancel()
	name := newName()
	key, err := m.keys.own(name)
	if err != nil {
		return nil, err
	}
	made, err := m.store.Create(ctx, m.settings.pod(name, guestlink.Public(key)), template, guestlink.Public(key))
	if err != nil {
		if !refused(err) { // its answer may be lost, and not its effect
			m.abandon(ctx, name, "")
		}
		return nil, explainAPI(ctx, err, sdk.CodeCreateFailed, "make a pod")
	}
	s := m.track(name, string(made.UID))
	if err := m.start(ctx, s, key, template); err != nil {
		m.forget(s)
		m.abandon(ctx, name, s.uid)
		return nil, err
	}
	return s, nil
}

var errSlow = errors.New("the pod did not run within create_timeout")

// start waits until the pod runs, and readies its guest.
func (m *maker) start(ctx context.Context, s *sandbox, key ed25519.PrivateKey, template string) error {
	pod, err := m.store.Await(ctx, s.name, s.uid, pods.Running)
	if err != nil {
		return explainStart(ctx, pod, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if s.fingerprint, err = m.readFingerprint(ctx, s); err != nil {
		return err
	}
	if err := m.connect(s, key); err != nil {
		return err
	}
	return m.prepare(ctx, s, template)
}

// readFingerprint reads who the guest is from the pod's log, which is the kubelet's word.
func (m *maker) readFingerprint(ctx context.Context, s *sandbox) (guestlink.Fingerprint, error) {
	for {
		log, err := m.store.Log(ctx, s.name)
		if err == nil {
			if found, ok := guestlink.ParseFingerprint(log); ok {
				return found, nil
			}
		}
		select {
		case <-time.After(readLog):
		case <-s.exited:
			return "", sdk.Errorf(sdk.CodeCreateFailed, "the pod ended before it was ready: %s; it said: %.300s", s.ending, log)
		case <-ctx.Done():
			return "", sdk.Errorf(sdk.CodeCreateFailed, "the guest of the pod did not start: %w; it said: %.300s", errors.Join(context.Cause(ctx), err), log)
		}
	}
}

// connect makes the client of a sandbox, whose connections come when they are needed.
func (m *maker) connect(s *sandbox, key ed25519.PrivateKey) (err error) {
	dialer := guestlink.Dialer{Key: key, Guest: s.fingerprint, Connect: func(ctx context.Context) (net.Conn, error) {
		pod, err := m.store.Await(ctx, s.name, s.uid, pods.Running)
		if err != nil {
			return nil, err
		}
		return m.dial(ctx, pod)
	}}
	s.guest, err = guestclient.Redialing(dialer.Dial)
	return err
}

// prepare readies the guest for a template, and learns which interpreters the image has.
func (m *maker) prepare(ctx context.Context, s *sandbox, template string) error {
	told, err := s.guest.Prepare(ctx, m.preparation(template))
	if err != nil {
		return sdk.Errorf(sdk.CodeCreateFailed, "the guest of the pod is not ready: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.interpreters = map[sdk.Language]string{}
	for language, path := range told.GetInterpreters() {
		m.interpreters[sdk.Language(language)] = path
	}
	m.npm = told.GetNpm()
	return nil
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

// track has the end of a pod noticed.
func (m *maker) track(name, uid string) *sandbox {
	s := &sandbox{name: name, uid: uid, from: m, exited: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[name] = s
	return s
}

func (m *maker) forget(s *sandbox) {
	m.mu.Lock()
	delete(m.known, s.name)
	m.mu.Unlock()
	if s.guest != nil {
		_ = s.guest.Close()
	}
}

// changed is told of each change of a pod.
func (m *maker) changed(pod *corev1.Pod) {
	m.mu.Lock()
	s := m.known[pod.Name]
	m.mu.Unlock()
	if s == nil || s.uid != string(pod.UID) {
		return
	}
	if ending := pods.Ended(pod); ending != nil {
		s.end(ending)
	}
}

// end notes the end of a sandbox, and the first reason for it.
func (s *sandbox) end(why *pods.Ending) {
	s.once.Do(func() {
		s.ending = why
		close(s.exited)
	})
}

// cleanUp bounds what is done after a caller has gone.
const cleanUp = 10 * time.Second

// abandon destroys what a failed creation has left, if there is anything.
func (m *maker) abandon(ctx context.Context, name, uid string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	_ = m.store.Remove(ctx, name, uid) // what stays has this process for its holder, and is swept
}

// Exited implements pool.Sandbox.
func (s *sandbox) Exited() <-chan struct{} { return s.exited }

// Destroy implements pool.Sandbox. It returns when the pod is gone.
func (s *sandbox) Destroy(ctx context.Context) error {
	s.end(&pods.Ending{Asked: true, Reason: "Deleted"}) // what still runs is told so
	s.from.forget(s)
	return s.from.store.Destroy(ctx, s.name, s.uid)
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

func (s *sandbox) String() string { return fmt.Sprintf("pod %s", s.name) }
