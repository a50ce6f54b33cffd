package portproxy_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/api/portproxy"
	"github.com/sandbox-broker/sandbox-broker/e2e/lateend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const prefix = "/preview/TOKEN"

// pass passes a request on to a program and returns what came of it.
func pass(t *testing.T, browser bool, path string, r *http.Request, program http.HandlerFunc) (*httptest.ResponseRecorder, error) {
	t.Helper()
	return passAs(t, portproxy.Exchange{Path: path, Browser: browser}, r, program)
}

// passAs is pass for an exchange with more to it.
func passAs(t *testing.T, e portproxy.Exchange, r *http.Request, program http.HandlerFunc) (*httptest.ResponseRecorder, error) {
	t.Helper()
	srv := httptest.NewServer(program)
	t.Cleanup(srv.Close)
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	assert.NilError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	w := httptest.NewRecorder()
	e.Conn, e.Port, e.Prefix, e.Scheme, e.Host, e.RequestID = conn, 8000, prefix, "https", "broker.example", "r-1"
	return w, e.Serve(w, r)
}

func TestWhatTheProgramSees(t *testing.T) {
	for name, test := range map[string]struct {
		browser bool
		headers map[string][]string
		want    map[string]string
		never   []string
	}{
		"the broker's tokens are kept from it": {
			headers: map[string][]string{
				"Authorization": {"Bearer s3cret", "bearer s3cret", "Basic dTpw"}, "X-Api-Key": {"s3cret"},
				"Proxy-Authorization": {"Bearer s3cret"}, "Cookie": {"sandbox_broker_session=s3cret; __Host-sandbox_broker_x=s3cret; mine=1"},
			},
			want:  map[string]string{"Authorization": "Basic dTpw", "Cookie": "mine=1"},
			never: []string{"s3cret"},
		},
		"other programs' cookies are kept from it": {
			browser: true,
			headers: map[string][]string{"Cookie": {"jupyter=s3cret; sandbox_preview_mine=1; sandbox_preview_=s3cret", "sandbox_preview_two=2"}},
			want:    map[string]string{"Cookie": "mine=1; two=2"},
			never:   []string{"s3cret"},
		},
		"a client does not say where it came from": {
			headers: map[string][]string{
				"X-Forwarded-For": {"6.6.6.6"}, "X-Forwarded-Host": {"evil"}, "X-Forwarded-Proto": {"evil"}, "X-Forwarded-Prefix": {"/evil"},
				"Forwarded": {"for=6.6.6.6"}, "X-Real-Ip": {"6.6.6.6"},
			},
			want: map[string]string{
				"X-Forwarded-For": "", "X-Forwarded-Host": "broker.example", "X-Forwarded-Proto": "https",
				"X-Forwarded-Prefix": prefix, "Forwarded": "", "X-Real-Ip": "",
			},
			never: []string{"6.6.6.6", "evil"},
		},
		"what holds for one hop stays there": {
			headers: map[string][]string{"Connection": {"X-Hop"}, "X-Hop": {"1"}, "Keep-Alive": {"1"}, "X-Kept": {"1"}},
			want:    map[string]string{"X-Hop": "", "Keep-Alive": "", "X-Kept": "1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "http://broker.example/x", nil)
			for name, values := range test.headers {
				r.Header[name] = values
			}
			var seen *http.Request
			_, err := pass(t, test.browser, "/", r, func(_ http.ResponseWriter, r *http.Request) { seen = r })
			assert.NilError(t, err)
			for name, value := range test.want {
				assert.Check(t, is.Equal(strings.Join(seen.Header.Values(name), ","), value), name)
			}
			for _, text := range test.never {
				for name, values := range seen.Header {
					assert.Check(t, !strings.Contains(strings.Join(values, ","), text), name)
				}
			}
			assert.Check(t, is.Equal(seen.Host, "localhost:8000"))
		})
	}
}

func TestCredentialsOfAnAPIAreKeptFromTheProgram(t *testing.T) {
	credentials := []string{"OPEN-SANDBOX-API-KEY", "x-execd-access-token"}
	for name, headers := range map[string]map[string]string{
		"a plain request": {},
		"a handshake":     {"Connection": "Upgrade", "Upgrade": "websocket"},
	} {
		for _, browser := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				r := httptest.NewRequest(http.MethodGet, "http://broker.example/x", nil)
				for name, value := range headers {
					r.Header.Set(name, value)
				}
				for _, name := range credentials {
					r.Header[http.CanonicalHeaderKey(name)] = []string{"s3cret", "s3cret too"}
				}
				r.Header.Set("Open-Sandbox-Api-Key-Id", "its own")
				var seen http.Header
				_, err := passAs(t, portproxy.Exchange{Path: "/", Browser: browser, Credentials: credentials}, r, func(_ http.ResponseWriter, r *http.Request) { seen = r.Header })
				assert.NilError(t, err)
				assert.Check(t, is.Equal(seen.Get("Open-Sandbox-Api-Key-Id"), "its own"))
				assert.Check(t, is.Equal(seen.Get("Upgrade"), headers["Upgrade"]))
				for name, values := range seen {
					assert.Check(t, !strings.Contains(strings.Join(values, ","), "s3cret"), name)
				}
			})
		}
	}
}

func TestThePathIsTheClientsOwn(t *testing.T) {
	for _, target := range []string{
		"/", "/a/b", "//a//b/", "/a%2Fb", "/a/../../b", "/%2e%2e/b", "/a%3Fb%23", "/a;b=c,d", "/%C3%A9", "/%00", "/a?b=c;d&e=%zz", "/?",
	} {
		t.Run(target, func(t *testing.T) {
			path, query, _ := strings.Cut(target, "?")
			r := httptest.NewRequest(http.MethodGet, "http://x/", nil)
			r.URL.RawQuery = query
			var seen string
			_, err := pass(t, false, path, r, func(_ http.ResponseWriter, r *http.Request) { seen = r.RequestURI })
			assert.NilError(t, err)
			assert.Equal(t, seen, strings.TrimSuffix(target, "?"))
		})
	}
	t.Run("what may not stand in a path is escaped", func(t *testing.T) {
		var seen string
		_, err := pass(t, false, `/a"b%2F|é`, httptest.NewRequest(http.MethodGet, "http://x/", nil), func(_ http.ResponseWriter, r *http.Request) { seen = r.RequestURI })
		assert.NilError(t, err)
		assert.Equal(t, seen, "/a%22b%2F%7C%C3%A9")
	})
}

func TestRedirectsLeadBackToTheProgram(t *testing.T) {
	for location, want := range map[string]string{
		"/":                                 prefix + "/",
		"/login?next=%2Fa#x":                prefix + "/login?next=%2Fa#x",
		"/a%2Fb":                            prefix + "/a%2Fb",
		"login":                             "login",
		"../up":                             "../up",
		"?page=2":                           "?page=2",
		"http://localhost:8000":             prefix + "/",
		"http://localhost:8000/a":           prefix + "/a",
		"http://LOCALHOST:8000/a":           prefix + "/a",
		"http://127.0.0.1:8000/a?b":         prefix + "/a?b",
		"http://0.0.0.0:8000/":              prefix + "/",
		"http://[::1]:8000/a":               prefix + "/a",
		"//localhost:8000/a":                prefix + "/a",
		"https://broker.example/a":          prefix + "/a",
		"https://broker.example" + prefix:   prefix,
		prefix + "/a":                       prefix + "/a",
		prefix + "X/a":                      prefix + prefix + "X/a",
		"http://localhost:8001/a":           "http://localhost:8001/a",
		"http://localhost/a":                "http://localhost/a",
		"https://elsewhere.example/a":       "https://elsewhere.example/a",
		"mailto:a@b":                        "mailto:a@b",
		"ftp://localhost:8000/a":            "ftp://localhost:8000/a",
		"https://broker.example/api/v1/any": prefix + "/api/v1/any",
	} {
		t.Run(location, func(t *testing.T) {
			w, err := pass(t, true, "/", httptest.NewRequest(http.MethodGet, "http://x/", nil), func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", location)
				w.WriteHeader(http.StatusFound)
			})
			assert.NilError(t, err)
			assert.Equal(t, w.Code, http.StatusFound)
			assert.Equal(t, w.Header().Get("Location"), want)
		})
	}
}

func TestCookiesStayWithTheProgram(t *testing.T) {
	for line, want := range map[string]struct{ agent, browser string }{
		"a=1":                                  {"a=1; Path=" + prefix + "/", "sandbox_preview_a=1; Path=" + prefix + "/"},
		"a=1; Path=/":                          {"a=1; Path=" + prefix + "/", "sandbox_preview_a=1; Path=" + prefix + "/"},
		"a=1; Path=/sub; Secure; HttpOnly":     {"a=1; Path=" + prefix + "/sub; HttpOnly; Secure", "sandbox_preview_a=1; Path=" + prefix + "/sub; HttpOnly; Secure"},
		"a=1; Path=" + prefix + "/sub":         {"a=1; Path=" + prefix + "/sub", "sandbox_preview_a=1; Path=" + prefix + "/sub"},
		"a=1; Domain=broker.example; Path=/":   {"a=1; Path=" + prefix + "/", "sandbox_preview_a=1; Path=" + prefix + "/"},
		"a=1; Path=elsewhere; SameSite=Strict": {"a=1; Path=" + prefix + "/; SameSite=Strict", "sandbox_preview_a=1; Path=" + prefix + "/; SameSite=Strict"},
		"sandbox_broker_session=1":             {"", ""},
		"__Host-Sandbox_Broker_x=1; Path=/":    {"", ""},
		"no cookie":                            {"", ""},
	} {
		t.Run(line, func(t *testing.T) {
			for browser, want := range map[bool]string{false: want.agent, true: want.browser} {
				w, err := pass(t, browser, "/", httptest.NewRequest(http.MethodGet, "http://x/", nil), func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Add("Set-Cookie", line)
				})
				assert.NilError(t, err)
				assert.Check(t, is.Equal(w.Header().Get("Set-Cookie"), want))
			}
		})
	}
}

func TestAProgramDoesNotSpeakForTheBrokersOrigin(t *testing.T) {
	for name, value := range map[string]string{
		"Strict-Transport-Security": "max-age=1", "Clear-Site-Data": `"*"`, "Alt-Svc": `h3=":443"`, "Service-Worker-Allowed": "/",
		"Nel": "{}", "Report-To": "{}", "Reporting-Endpoints": "a=\"https://x\"", "Accept-Ch": "DPR", "Origin-Agent-Cluster": "?1",
		"Access-Control-Allow-Credentials": "true", "Public-Key-Pins": "x",
		"Set-Login": "logged-in", "Sec-Session-Registration": "x", "Sec-Session-Challenge": "x", "Sec-Of-Next-Year": "x",
		"Use-As-Dictionary": "match=/", "Speculation-Rules": "x", "Www-Authenticate": "Basic", "Www-Authenticate-Of-Next-Year": "x",
		"Activate-Storage-Access": "load", "Attribution-Reporting-Register-Source": "{}", "No-Vary-Search": "params",
		"Hold-For-All-Of-The-Origin": "x",
	} {
		t.Run(name, func(t *testing.T) {
			w, err := pass(t, true, "/", httptest.NewRequest(http.MethodGet, "http://x/", nil), func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(name, value)
			})
			assert.NilError(t, err)
			assert.Equal(t, w.Header().Get(name), "")
		})
	}
	t.Run("its pages have an origin of their own", func(t *testing.T) {
		w, err := pass(t, true, "/", httptest.NewRequest(http.MethodGet, "http://x/", nil), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Security-Policy", "default-src 'self'")
			w.Header().Set("Referrer-Policy", "unsafe-url")
			w.Header().Set("Access-Control-Allow-Origin", "https://evil.example")
			w.Header().Set("X-Request-Id", "forged")
			w.Header().Set("Link", "</x>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusTeapot)
		})
		assert.NilError(t, err)
		assert.Equal(t, w.Code, http.StatusTeapot)
		assert.DeepEqual(t, w.Header().Values("Content-Security-Policy"), []string{"default-src 'self'", "sandbox allow-scripts allow-forms allow-popups"})
		assert.DeepEqual(t, w.Header().Values("Referrer-Policy"), []string{"no-referrer"})
		assert.DeepEqual(t, w.Header().Values("X-Content-Type-Options"), []string{"nosniff"})
		assert.DeepEqual(t, w.Header().Values("Access-Control-Allow-Origin"), []string{"*"})
		assert.DeepEqual(t, w.Header().Values("X-Request-Id"), []string{"r-1"})
	})
	t.Run("without a browser nobody else may read", func(t *testing.T) {
		w, err := pass(t, false, "/", httptest.NewRequest(http.MethodGet, "http://x/", nil), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", "*")
		})
		assert.NilError(t, err)
		assert.Equal(t, w.Header().Get("Access-Control-Allow-Origin"), "")
		assert.Equal(t, w.Header().Get("Content-Security-Policy"), "sandbox allow-scripts allow-forms allow-popups")
	})
}

func TestAPreflightIsAnsweredInPlaceOfTheProgram(t *testing.T) {
	r := httptest.NewRequest(http.MethodOptions, "http://x/", nil)
	r.Header.Set("Origin", "null")
	r.Header.Set("Access-Control-Request-Method", "PUT")
	w, err := pass(t, true, "/", r, func(http.ResponseWriter, *http.Request) { t.Error("not asked") })
	assert.NilError(t, err)
	assert.Equal(t, w.Code, http.StatusNoContent)
	assert.Equal(t, w.Header().Get("Access-Control-Allow-Origin"), "*")
	assert.Assert(t, is.Contains(w.Header().Get("Access-Control-Allow-Methods"), "PUT"))
}

func TestAProgramThatIsNoServer(t *testing.T) {
	for name, answer := range map[string]string{
		"says nothing":              "",
		"speaks something else":     "SSH-2.0-OpenSSH_9\r\n",
		"has a status below 100":    "HTTP/1.1 099 Low\r\nContent-Length: 2\r\n\r\nok",
		"has the status 000":        "HTTP/1.1 000 None\r\nContent-Length: 2\r\n\r\nok",
		"switches without question": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
		"has headers without end":   "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+strings.Repeat("x", 1000)+"\r\n", 400) + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			said := make(chan struct{})
			go func() {
				defer close(said)
				defer theirs.Close()
				buf := make([]byte, 4096)
				if _, err := theirs.Read(buf); err == nil {
					_, _ = io.WriteString(theirs, answer)
				}
			}()
			w := httptest.NewRecorder()
			e := portproxy.Exchange{Conn: ours, Port: 1, Prefix: prefix, Path: "/"}
			err := e.Serve(w, httptest.NewRequest(http.MethodGet, "http://x/", nil))
			assert.ErrorIs(t, err, portproxy.ErrAnswer)
			assert.Equal(t, w.Body.Len(), 0)
			_ = ours.Close()
			<-said
		})
	}
}

func TestAClientThatLeaves(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	released := make(chan struct{})
	_, err := pass(t, false, "/", httptest.NewRequest(http.MethodGet, "http://x/", nil).WithContext(ctx), func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
		close(released)
	})
	assert.ErrorIs(t, err, context.Canceled)
	<-released
}

func TestAProgramDoesNotSteerWhatStandsBeforeTheBroker(t *testing.T) {
	for _, browser := range []bool{false, true} {
		for _, name := range []string{
			"X-Accel-Redirect", "X-Accel-Expires", "X-Accel-Buffering", "X-Sendfile", "X-Sendfile2", "X-Lighttpd-Send-File", "X-LIGHTTPD-send-tempfile",
			"X-Reproxy-Url", "X-Reproxy-File", "X-Send-File", "X-Envoy-Upstream-Rq-Timeout", "Surrogate-Control", "Cdn-Cache-Control",
			"Cloudflare-Cdn-Cache-Control", "Set-Login", "Sec-Session-Registration", "Www-Authenticate", "Proxy-Authenticate", "Sec-Websocket-Accept",
		} {
			w, err := pass(t, browser, "/", httptest.NewRequest(http.MethodGet, "http://x/", nil), func(w http.ResponseWriter, _ *http.Request) {
				w.Header()[name] = []string{"/internal/secret"}
			})
			assert.NilError(t, err)
			assert.Check(t, is.Equal(w.Header().Get(name), ""), name)
		}
	}
}

func TestAProgramsOwnFieldsPass(t *testing.T) {
	for name, browser := range map[string]bool{
		"X-Total-Count": true, "Mcp-Session-Id": true, "Etag": true, "Last-Modified": true, "Content-Disposition": true, "Link": true,
		"Hx-Trigger": true, "Anything-Else": false,
	} {
		for _, shown := range []bool{false, true} {
			w, err := pass(t, shown, "/", httptest.NewRequest(http.MethodGet, "http://x/", nil), func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(name, "1")
			})
			assert.NilError(t, err)
			assert.Check(t, is.Equal(w.Header().Get(name) == "1", browser || !shown), name)
		}
	}
}

func TestASharedCacheKeepsNothing(t *testing.T) {
	for said, want := range map[string]string{
		"":                                    "private",
		"public, max-age=60":                  "private, max-age=60",
		"S-Maxage=60":                         "private",
		"no-store":                            "private, no-store",
		"private=\"x\", immutable, max-age=1": "private, immutable, max-age=1",
	} {
		w, err := pass(t, true, "/", httptest.NewRequest(http.MethodGet, "http://x/", nil), func(w http.ResponseWriter, _ *http.Request) {
			if said != "" {
				w.Header().Set("Cache-Control", said)
			}
		})
		assert.NilError(t, err)
		assert.Check(t, is.Equal(w.Header().Get("Cache-Control"), want))
	}
}

func TestTrailersStayBehind(t *testing.T) {
	for name, program := range map[string]http.HandlerFunc{
		"announced": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "Set-Cookie, Clear-Site-Data")
			_, _ = io.WriteString(w, "text")
			w.Header().Set("Set-Cookie", "a=1")
			w.Header().Set("Clear-Site-Data", "x")
		},
		"by surprise": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "text")
			w.Header().Set(http.TrailerPrefix+"X-Request-Id", "forged")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := pass(t, true, "/", httptest.NewRequest(http.MethodGet, "http://x/", nil), program)
			assert.NilError(t, err)
			assert.Equal(t, w.Body.String(), "text")
			assert.Equal(t, len(w.Result().Trailer), 0)
			assert.Equal(t, w.Result().Header.Get("Trailer"), "")
			assert.DeepEqual(t, w.Header().Values("X-Request-Id"), []string{"r-1"})
			for name := range w.Header() {
				assert.Check(t, !strings.HasPrefix(name, http.TrailerPrefix), name)
			}
		})
	}
}

func TestTheBrokersSubprotocolsStayWithIt(t *testing.T) {
	for name, test := range map[string]struct {
		offered []string
		want    string
	}{
		"a token alone":           {[]string{"bearer.s3cret"}, ""},
		"a token among others":    {[]string{"chat, bearer.s3cret", "bearer.s3cret ,v2"}, "chat, v2"},
		"in other letters":        {[]string{"Bearer.s3cret,chat"}, "chat"},
		"the broker's protocols":  {[]string{"sandbox-broker.terminal, chat"}, "chat"},
		"nothing but commas":      {[]string{", ,"}, ""},
		"those of the program":    {[]string{"v1.kernel.websocket.jupyter.org"}, "v1.kernel.websocket.jupyter.org"},
		"what only looks like it": {[]string{"x-bearer.y"}, "x-bearer.y"},
	} {
		for _, browser := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				r := httptest.NewRequest(http.MethodGet, "http://x/", nil)
				r.Header["Sec-Websocket-Protocol"] = test.offered
				var seen http.Header
				_, err := pass(t, browser, "/", r, func(_ http.ResponseWriter, r *http.Request) { seen = r.Header })
				assert.NilError(t, err)
				assert.Equal(t, strings.Join(seen.Values("Sec-Websocket-Protocol"), "|"), test.want)
			})
		}
	}
}

func TestARequestMayEndAfterTheAnswerHasBegun(t *testing.T) {
	late := lateend.New()
	program := httptest.NewServer(http.HandlerFunc(late.Origin))
	defer program.Close()
	front := httptest.NewServer(late.Front(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", program.Listener.Addr().String())
		if assert.Check(t, err) {
			defer conn.Close()
			e := portproxy.Exchange{Conn: conn, Port: 8000, Path: "/", Prefix: prefix}
			assert.Check(t, e.Serve(w, r))
		}
	})))
	defer front.Close()
	late.Ask(t, front.Client(), front.URL)
}
