package gateway

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// In whatever pieces a secret comes, it is replaced, and nothing else is.
func TestASecretIsMaskedInWhateverPiecesItComes(t *testing.T) {
	const secret = "abcabcabd"
	x := &exchange{secrets: []sdk.NetworkSecret{{Value: secret}}}
	for text, want := range map[string]string{
		"":                              "",
		"nothing of it":                 "nothing of it",
		"abcabc":                        "abcabc",
		secret:                          "*********",
		"x" + secret + "y" + secret:     "x*********y*********",
		"abcabc" + secret:               "abcabc*********",
		"abcabcabcabd":                  "abc*********",
		strings.Repeat("z", 5) + "abca": "zzzzzabca",
	} {
		for name, pieces := range map[string]func(io.Reader) io.Reader{"one": iotest.OneByteReader, "half": iotest.HalfReader, "with the end": iotest.DataErrReader} {
			got, err := io.ReadAll(x.masked(pieces(strings.NewReader(text))))
			assert.NilError(t, err)
			assert.Check(t, is.Equal(string(got), want), name)
		}
	}
}

// The name, or the value, of one secret may be a part of that of another.
func TestASecretIsNotTakenForALongerOne(t *testing.T) {
	short := sdk.NetworkSecret{Name: "github", Header: "Authorization", Value: "hunter22"}
	long := sdk.NetworkSecret{Name: "github-admin", Header: "Authorization", Value: "my-hunter22-too"}
	for name, secrets := range map[string][]sdk.NetworkSecret{"the short one first": {short, long}, "the long one first": {long, short}} {
		t.Run(name, func(t *testing.T) {
			x := &exchange{secrets: secrets}
			header := http.Header{"Authorization": {"Bearer " + long.Placeholder() + " " + short.Placeholder()}}
			assert.NilError(t, x.fill(header, true))
			assert.Equal(t, header.Get("Authorization"), "Bearer "+long.Value+" "+short.Value)
			x.maskHeader(header)
			assert.Equal(t, header.Get("Authorization"), "Bearer *************** ********")
			got, err := io.ReadAll(x.masked(iotest.OneByteReader(strings.NewReader(long.Value + " " + short.Value))))
			assert.NilError(t, err)
			assert.Equal(t, string(got), "*************** ********")
		})
	}
}

// Nobody follows: nothing waits, what is lost is counted, and no tenant has all the room.
func TestNoTenantHasAllTheRoomForReports(t *testing.T) {
	r := newReports()
	for range 2 * sdk.MaxNetworkBacklog {
		r.add("loud", sdk.NetworkConnection{InstanceID: "loud"})
	}
	r.add("quiet", sdk.NetworkConnection{InstanceID: "quiet"})
	count, lost := map[string]int{}, int64(0)
	for report, _, ok := r.take(); ok; report, _, ok = r.take() {
		lost += report.Lost
		for _, c := range report.Connections {
			count[c.InstanceID]++
		}
	}
	assert.DeepEqual(t, count, map[string]int{"loud": sdk.MaxNetworkBacklog / 2, "quiet": 1})
	assert.Equal(t, lost, int64(2*sdk.MaxNetworkBacklog-sdk.MaxNetworkBacklog/2))
	assert.Equal(t, len(r.tenants), 0)

	r.lose()
	_, due, ok := r.take()
	assert.Check(t, !ok && due > 0, "how many are lost is not told all the time")
}

func clientHello(name string) []byte {
	ours, theirs := net.Pipe()
	go func() {
		_ = tls.Client(theirs, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
	}()
	defer ours.Close()
	buf := make([]byte, 4096)
	n, _ := ours.Read(buf)
	return buf[:n]
}

func FuzzTheBeginningOfTLS(f *testing.F) {
	f.Add(clientHello("open.example.com"))
	f.Add(clientHello(""))
	f.Add([]byte("\x16\x03\x01\xff\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		said, err := readHello(bytes.NewReader(text[:min(len(text), 1<<12)]))
		if err == nil && !bytes.HasPrefix(text, said.text) {
			t.Error("what is passed on is not what came")
		}
	})
}

// What is read as one request is one request to anybody: written anew and read again it is the
// same, and it takes from the connection what its head says.
func FuzzTheHeadOfARequest(f *testing.F) {
	for _, text := range []string{
		"GET http://a.example.com/ HTTP/1.1\r\nHost: a.example.com\r\n\r\n",
		"POST http://a.example.com/ HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 3\r\n\r\nabcGET /",
		"POST http://a/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"CONNECT a:443 HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\nHost: a\n\n", "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(text), maxHead)
		request, host, err := readRequest(r)
		if err != nil {
			return
		}
		head := string(text[:bytes.Index(text, []byte("\r\n\r\n"))])
		lines := strings.Split(head, "\r\n")
		if strings.ContainsAny(strings.Join(lines, ""), "\r\n\x00") {
			t.Error("a line within a line")
		}
		if len(request.TransferEncoding) > 0 && request.Header.Get("Content-Length") != "" {
			t.Error("two lengths")
		}
		if strings.ContainsAny(host, "\r\n") {
			t.Error("a host of two lines")
		}
		for name, values := range outgoing(request.Header) {
			for _, value := range values {
				if strings.ContainsAny(name+value, "\r\n\x00") {
					t.Errorf("%q: %q goes on", name, value)
				}
			}
		}
	})
}
