// What a test wants to know of a playing page, measured from outside its own code.
(() => {
  const playing = () => document.querySelector("video.shown");
  const canvas = document.createElement("canvas");
  const side = (canvas.width = canvas.height = 128);
  const paint = canvas.getContext("2d", { willReadFrequently: true });

  function gray(box) {
    const [x, y, w, h] = box.map((share) => Math.round(share * side));
    paint.drawImage(playing(), 0, 0, side, side);
    const { data } = paint.getImageData(x, y, w, h);
    const out = new Float32Array(data.length / 4);
    for (let i = 0; i < out.length; i += 1) {
      out[i] = 0.3 * data[4 * i] + 0.59 * data[4 * i + 1] + 0.11 * data[4 * i + 2];
    }
    return out;
  }

  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

  window.probe = {
    frames: () => playing()?.getVideoPlaybackQuality().totalVideoFrames ?? 0,

    // Mean absolute change between looks, per pixel and in grey levels, in each of the boxes.
    async motion(boxes, ms) {
      const sums = boxes.map(() => 0);
      let before = boxes.map(gray);
      let looks = 0;
      const end = performance.now() + ms;
      while (performance.now() < end) {
        await pause(80);
        const now = boxes.map(gray);
        now.forEach((pixels, box) => {
          let sum = 0;
          for (let i = 0; i < pixels.length; i += 1) sum += Math.abs(pixels[i] - before[box][i]);
          sums[box] += sum / pixels.length;
        });
        before = now;
        looks += 1;
      }
      return sums.map((sum) => sum / looks);
    },

    // Root mean square of the sound, as the browser decoded it, at every look.
    async loudness(ms) {
      const context = (window.probeContext ??= new AudioContext());
      await context.resume();
      const stream = playing().srcObject;
      if (window.probeStream !== stream) {
        window.probeStream = stream;
        window.probeNode?.disconnect();
        window.probeNode = context.createMediaStreamSource(stream);
        window.probeAnalyser = new AnalyserNode(context, { fftSize: 1024 });
        window.probeNode.connect(window.probeAnalyser);
      }
      const samples = new Float32Array(1024);
      const found = [];
      const end = performance.now() + ms;
      while (performance.now() < end) {
        await pause(20);
        window.probeAnalyser.getFloatTimeDomainData(samples);
        let sum = 0;
        for (const sample of samples) sum += sample * sample;
        found.push(Math.sqrt(sum / samples.length));
      }
      return found;
    },
  };
})();
