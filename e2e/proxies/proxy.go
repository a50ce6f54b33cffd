package proxies

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
)

// proxy is one kind of proxy. Its configuration gives each request that it passes on
// an ID that begins with stamp, which a client does not know, and has it obey whatever
// fields of an answer the proxy obeys by itself.
type proxy struct {
	name, program, pkg string
	// args start it in the foreground, with its configuration in a file of the
	// directory.
	args func(dir string) []string
	// config may use LISTEN, H2, BROKER, STAMP and DIR. Something internal lies
	// behind /internal/.
	config string
}

var all = []proxy{
	{
		name: "nginx", program: "nginx", pkg: "nginx-light",
		args: func(dir string) []string {
			return []string{"-p", dir, "-c", filepath.Join(dir, "config"), "-e", filepath.Join(dir, "error.log")}
		},
		config: `
daemon off;
user root;
worker_processes 1;
pid DIR/pid;
error_log DIR/error.log;
events {}
http {
	access_log off;
	client_body_temp_path DIR/body; proxy_temp_path DIR/proxy; fastcgi_temp_path DIR/fastcgi; uwsgi_temp_path DIR/uwsgi; scgi_temp_path DIR/scgi;
	upstream broker { server BROKER; keepalive 4; }
	server {
		listen LISTEN;
		underscores_in_headers on;
		ignore_invalid_headers off;
		location / {
			proxy_pass http://broker;
			proxy_http_version 1.1;
			proxy_request_buffering off;
			proxy_set_header Connection "";
			proxy_set_header X-Request-Id STAMP$request_id;
		}
		location /internal/ { internal; alias DIR/internal/; }
	}
	server {
		listen H2 http2;
		location / {
			proxy_pass http://broker;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_set_header X-Request-Id STAMP$request_id;
		}
	}
}
`,
	},
	{
		name: "haproxy", program: "haproxy", pkg: "haproxy",
		args: func(dir string) []string { return []string{"-db", "-f", filepath.Join(dir, "config")} },
		config: `
global
	nbthread 1
defaults
	mode http
	timeout connect 5s
	timeout client 20s
	timeout server 20s
	option accept-invalid-http-request
frontend front
	bind LISTEN
	bind H2 proto h2
	http-request set-header X-Request-Id STAMP%[rand(1000000000)]-%[rand(1000000000)]
	default_backend broker
backend broker
	http-reuse always
	server broker BROKER
`,
	},
	{
		name: "caddy", program: "caddy", pkg: "caddy",
		args: func(dir string) []string {
			return []string{"run", "--adapter", "caddyfile", "--config", filepath.Join(dir, "config")}
		},
		config: `
{
	admin off
	auto_https off
	storage file_system DIR/storage
	servers {
		protocols h1 h2c
	}
}
http://LISTEN, http://H2 {
	handle /internal/* {
		respond 404
	}
	handle {
		reverse_proxy BROKER {
			header_up X-Request-Id STAMP{http.request.uuid}
			@accel header X-Accel-Redirect *
			handle_response @accel {
				root * DIR
				rewrite * {rp.header.X-Accel-Redirect}
				file_server
			}
		}
	}
}
`,
	},
}

const stamp = "stamped-by-the-proxy-"

// secret is what lies behind /internal/secret.
const secret = "the internal secret"

// front is a proxy that runs.
type front struct {
	address, h2 string
	log         *output
}

type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start runs a proxy before a broker until the test ends.
func (p proxy) start(t *testing.T, broker string) *front {
	t.Helper()
	return p.startAt(t, freeAddress(t), broker)
}

// startAt is start for a proxy that listens there.
func (p proxy) startAt(t *testing.T, address, broker string) *front {
	t.Helper()
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	binaries.Needs(t, p.program, p.pkg)
	dir := t.TempDir()
	f := &front{address: address, h2: freeAddress(t), log: &output{}}
	assert.NilError(t, os.Mkdir(filepath.Join(dir, "internal"), 0o755))
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "internal", "secret"), []byte(secret), 0o644))
	config := strings.NewReplacer("LISTEN", f.address, "H2", f.h2, "BROKER", strings.TrimPrefix(broker, "http://"), "STAMP", stamp, "DIR", dir).Replace(p.config)
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o644))
	cmd := exec.Command(p.program, p.args(dir)...)
	cmd.Stdout, cmd.Stderr = f.log, f.log
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	assert.NilError(t, cmd.Start())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
	})
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		select {
		case <-ended:
			return poll.Error(fmt.Errorf("%s ended:\n%s", p.name, f.log))
		default:
		}
		conn, err := net.Dial("tcp", f.address)
		if err != nil {
			return poll.Continue("%v\n%s", err, f.log)
		}
		_ = conn.Close()
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(20*time.Millisecond))
	return f
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}
