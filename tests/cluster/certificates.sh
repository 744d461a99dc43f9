# Certificates of one run: an authority of its own, so that a client that trusts it can only be talking to this run.
# Source lib.sh first. Keys are P-256: made in a millisecond.

# make_authority PKI
make_authority() {
  local pki=$1
  mkdir -p "$pki"
  chmod 700 "$pki"
  openssl ecparam -name prime256v1 -genkey -noout -out "$pki/ca.key" 2>/dev/null
  openssl req -x509 -new -key "$pki/ca.key" -sha256 -days 30 -subj "/CN=trainyard-test-ca-$RANDOM$RANDOM" \
    -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign" -out "$pki/ca.crt"
}

# make_certificate PKI NAME SUBJECT [SUBJECT_ALT_NAMES]: PKI/NAME.{key,crt}, good for client and server.
make_certificate() {
  local pki=$1 name=$2 subject=$3 names=${4:-}
  openssl ecparam -name prime256v1 -genkey -noout -out "$pki/$name.key" 2>/dev/null
  {
    printf 'basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n'
    printf 'extendedKeyUsage=clientAuth,serverAuth\n'
    [ -z "$names" ] || printf 'subjectAltName=%s\n' "$names"
  } >"$pki/$name.ext"
  openssl req -new -key "$pki/$name.key" -subj "$subject" |
    openssl x509 -req -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -set_serial "0x$(openssl rand -hex 8)" -sha256 -days 30 \
      -extfile "$pki/$name.ext" -out "$pki/$name.crt" 2>/dev/null
  rm -f "$pki/$name.ext"
}

# write_kubeconfig FILE SERVER CA CERTIFICATE KEY: with everything inside, so that the file can be copied elsewhere.
write_kubeconfig() {
  local file=$1 server=$2 ca=$3 certificate=$4 key=$5
  (
    umask 077
    cat >"$file.part" <<YAML
apiVersion: v1
kind: Config
clusters:
  - name: trainyard
    cluster: {server: "$server", certificate-authority-data: "$(base64 -w0 "$ca")"}
users:
  - name: trainyard
    user: {client-certificate-data: "$(base64 -w0 "$certificate")", client-key-data: "$(base64 -w0 "$key")"}
contexts:
  - name: trainyard
    context: {cluster: trainyard, user: trainyard, namespace: default}
current-context: trainyard
YAML
  )
  mv "$file.part" "$file"
}
