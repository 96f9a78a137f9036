// Copyright: the Sailloft maintainers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

// Command vcsim serves a simulated vCenter on loopback: the simulator package of govmomi with GPUs, NUMA nodes,
// passthrough, reboots and faults, from a JSON description of its hosts (hosts.go).
//
//	vcsim -topology FILE -state DIRECTORY
//
// It writes its certificate to DIRECTORY/ca.pem and prints its port. It exits when its standard input is closed, so
// that it never outlives the test that started it.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"io/ioutil"
	"log"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/vmware/govmomi/simulator"
)

func main() {
	topology := flag.String("topology", "", "JSON file with the hosts")
	state := flag.String("state", "", "directory for the certificate")
	flag.Parse()
	log.SetOutput(os.Stderr)

	site := read(*topology)
	model := simulator.VPX()
	model.Host, model.Machine, model.ClusterHost = 0, 0, len(site.Hosts)
	model.ServiceContent.About.ApiVersion = site.APIVersion
	defer model.Remove()
	if err := model.Create(); err != nil {
		log.Fatal(err)
	}
	populate(site)

	certificate, text := selfSigned()
	if err := ioutil.WriteFile(filepath.Join(*state, "ca.pem"), text, 0600); err != nil {
		log.Fatal(err)
	}
	model.Service.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	model.Service.Listen = &url.URL{Host: "127.0.0.1:0", User: url.UserPassword(site.User, site.Password)}
	server := model.Service.NewServer()
	server.Config.Handler = newProxy(server.Config.Handler, site.Groups)
	fmt.Println(server.URL.Port())
	_, _ = io.Copy(ioutil.Discard, os.Stdin)
	server.Close()
}

func read(path string) *site {
	data, err := ioutil.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	found := new(site)
	if err := json.Unmarshal(data, found); err != nil {
		log.Fatalf("%s: %s", path, err)
	}
	return found
}

// selfSigned returns a certificate for 127.0.0.1 that is valid for a day, and the certificate's text.
func selfSigned() (tls.Certificate, []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "simulated vCenter"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		log.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, text
}
