package proxies

import (
	"bytes"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// field is one of a request in HTTP/2, as it is sent, valid or not.
type field [2]string

// downgrades are requests in HTTP/2 that could become two when a proxy writes them in
// HTTP/1.1. Each has a body, smuggled.
var downgrades = map[string][]field{
	"a length that is too small":        {{"content-length", "0"}},
	"a length that is too large":        {{"content-length", "4000"}},
	"two lengths":                       {{"content-length", "0"}, {"content-length", "300"}},
	"a list of lengths":                 {{"content-length", "0, 300"}},
	"a length with a sign":              {{"content-length", "+0"}},
	"an encoding":                       {{"transfer-encoding", "chunked"}},
	"an encoding and a length":          {{"transfer-encoding", "chunked"}, {"content-length", "0"}},
	"an encoding in capitals":           {{"Transfer-Encoding", "chunked"}},
	"a line end in a value":             {{"x-a", "b\r\ntransfer-encoding: chunked"}},
	"a request in a value":              {{"x-a", "b\r\n\r\n" + whole}},
	"a line feed in a value":            {{"x-a", "b\ncontent-length: 0"}},
	"a NUL in a value":                  {{"x-a", "b\x00content-length: 0"}},
	"a line end in a name":              {{"x-a: b\r\ntransfer-encoding", "chunked"}},
	"a colon in a name":                 {{"transfer-encoding: chunked\r\nx", "y"}},
	"a space in a name":                 {{"content-length ", "0"}},
	"no name":                           {{"", "transfer-encoding: chunked"}},
	"a path with a request":             {{":path", path + " HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nx:"}},
	"a path with a space":               {{":path", path + " HTTP/1.1"}},
	"no path":                           {{":path", ""}},
	"a path without a slash":            {{":path", "api/v1/execute"}},
	"a method with a request":           {{":method", "POST " + path + " HTTP/1.1\r\nhost: x\r\n\r\nGET"}},
	"a method with a space":             {{":method", "POST /healthz"}},
	"a scheme with a request":           {{":scheme", "http://x/ HTTP/1.1\r\nhost: x\r\n\r\n"}},
	"an authority with a request":       {{":authority", "x\r\ntransfer-encoding: chunked"}},
	"two hosts":                         {{"host", "y"}},
	"two paths":                         {{":path", "/healthz"}, {":path", path}},
	"a connection of its own":           {{"connection", "x-api-key"}},
	"an upgrade":                        {{"connection", "upgrade"}, {"upgrade", "h2c"}},
	"a token in two fields":             {{"x-api-key", "token-of-acme"}},
	"a stamp that is forged":            {{"x-request-id", "smuggled"}},
	"a trailer that is announced":       {{"trailer", "x-api-key"}},
	"te":                                {{"te", "chunked, trailers"}},
	"an expectation":                    {{"expect", "100-continue"}, {"content-length", "0"}},
	"underscores in place of hyphens":   {{"transfer_encoding", "chunked"}, {"content_length", "0"}},
	"a pseudo-field that there is not":  {{":x", "y"}},
	"a pseudo-field behind the others ": {{"x-a", "b"}, {":path", "/healthz"}},
}

// downgrade sends one of them, with a trailer that has another's token.
func downgrade(address string, fields []field) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	framer.AllowIllegalWrites = true
	_ = framer.WriteSettings()
	given := map[string]bool{}
	for _, f := range fields {
		given[f[0]] = true
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range []field{{":method", "POST"}, {":scheme", "http"}, {":authority", "x"}, {":path", path}} {
		if !given[f[0]] {
			_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
	}
	for _, f := range append(fields, field{"x-api-key", "token-of-rival"}, field{"content-type", "application/json"}) {
		_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
	_ = framer.WriteData(1, false, []byte("0\r\n\r\n"+smuggled))
	block.Reset()
	_ = encoder.WriteField(hpack.HeaderField{Name: "x-api-key", Value: "token-of-acme"})
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = framer.WriteSettingsAck()
			}
		case *http2.GoAwayFrame, *http2.RSTStreamFrame:
			return
		default:
			if frame.Header().Flags.Has(http2.FlagDataEndStream) && frame.Header().StreamID == 1 {
				return
			}
		}
	}
}

func speaksHTTP2(t *testing.T, address string) {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/api/v1/instances", nil)
	assert.NilError(t, err)
	req.Header.Set("X-API-Key", harness.OtherToken)
	resp, err := transport.RoundTrip(req)
	assert.NilError(t, err)
	assert.NilError(t, resp.Body.Close())
	assert.Equal(t, resp.StatusCode, http.StatusOK)
}

func TestARequestInHTTP2IsOneForTheBroker(t *testing.T) {
	for _, p := range all {
		t.Run(p.name, func(t *testing.T) {
			b := startBroker(t, "")
			f := p.start(t, b.URL)
			direct := len(requestLine.FindAllString(b.Log(), -1))
			v := newVictim(f.address)
			defer v.client.CloseIdleConnections()
			speaksHTTP2(t, f.h2) // else the rest would prove nothing
			for name, fields := range downgrades {
				downgrade(f.h2, fields)
				assert.NilError(t, v.ask(), "about %q", name)
			}
			check(t, b, direct, v.sent)
		})
	}
}
